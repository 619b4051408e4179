-- Owners: what lets a request enter a lock that its owner already holds.
--
-- Reads:   holds, state; lock.live
-- Changes: nothing

-- The mode in which a request may enter the lock through a hold with these details, or else `entered`:
-- 'exclusive', 'shared', or nil. A slot cannot be entered again.
local function enter(details, entered)
  local mode = hold_state(details) == 'held' and details.mode
  return mode == 'exclusive' and mode or entered or mode == 'shared' and mode or nil
end

-- The mode in which an owner that a user chose holds the lock. It does not search many holds: only
-- those whose leases last longest.
local function owner_mode(owner)
  local entered = nil
  for _, token in ipairs(lock.live and redis.call('ZRANGE', HOLDS, -MAX_LISTED, -1) or {}) do
    local details = details_of(token)
    if details.owner == owner then entered = enter(details, entered) end
  end
  return entered
end

-- The innermost unexpired hold among `tokens`, and the mode in which a request may enter the lock
-- through them. A space follows each token; the innermost is last.
local function enclosing_hold(tokens)
  local innermost, entered = nil, nil
  for token in string.gmatch(tokens, '%S+') do
    if unexpired_hold(token) then
      innermost, entered = token, enter(details_of(token), entered)
    end
  end
  return innermost, entered
end

-- Whether a waiter with these details may enter a lock that its owner now holds: one that a user chose,
-- which begins with '='. It can enter from anywhere.
local function may_enter(details)
  if details.reentrant == '' or string.sub(details.owner, 1, 1) ~= '=' then return false end
  local outer = owner_mode(details.owner)
  return outer == 'exclusive' or outer == 'shared' and details.mode == 'shared'
end
