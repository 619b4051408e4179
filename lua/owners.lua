-- Owners: what lets a request enter a lock that its owner already holds.
--
-- Reads:   holds, state; lock.live, lock.mode, lock.named
-- Changes: nothing

-- The mode in which an owner that a user chose holds the lock: 'exclusive', 'shared', or nil. A
-- slot cannot be entered again.
local function owner_mode(owner)
  if not (lock.live and lock.named) or owner_count(owner) == 0 then return nil end
  if lock.mode == 'exclusive' or lock.mode == 'shared' then return lock.mode end
end

-- The innermost unexpired hold among `tokens`, and the mode in which a request may enter the lock
-- through them. A space follows each token; the innermost is last.
local function enclosing_hold(tokens)
  local innermost, entered = nil, nil
  for token in string.gmatch(tokens, '(%S+) ') do
    if unexpired_hold(token) then
      innermost = token
      local details = details_of(token)
      local mode = details.mode
      if hold_state(details) == 'held' and (mode == 'exclusive' or mode == 'shared') then
        entered = entered == 'exclusive' and entered or mode
      end
    end
  end
  return innermost, entered
end

-- Whether a waiter with these details may enter a lock that its owner now holds.
local function may_enter(details)
  local outer = details.reentrant ~= '' and details.named ~= '' and owner_mode(details.owner)
  return outer == 'exclusive' or outer == 'shared' and details.mode == 'shared'
end
