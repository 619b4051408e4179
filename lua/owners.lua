-- Owners: what lets a request enter a lock that its owner already holds.
--
-- Reads:   holds, state; lock.live
-- Changes: nothing

-- The mode in which a request may enter the lock through a hold with these details, or else
-- `entry_mode`: 'exclusive', 'shared', or nil. A slot cannot be entered again.
local function better_mode(details, entry_mode)
  local mode = hold_state(details) == 'held' and details.mode
  return mode == 'exclusive' and mode or entry_mode or mode == 'shared' and mode or nil
end

-- The mode in which an owner that a user chose holds the lock. It does not search many holds: only
-- those whose leases last longest.
local function owner_mode(owner)
  local entry_mode = nil
  for _, token in ipairs(lock.live and redis.call('ZRANGE', HOLDS, -MAX_LISTED, -1) or {}) do
    local details = details_of(token)
    if details.owner == owner then entry_mode = better_mode(details, entry_mode) end
  end
  return entry_mode
end

-- The innermost unexpired hold among `tokens`, and the mode in which a request may enter the lock
-- through them. A space follows each token; the innermost is last.
local function enclosing_hold(tokens)
  local innermost, entry_mode = nil, nil
  for token in string.gmatch(tokens, '%S+') do
    if unexpired_hold(token) then
      innermost, entry_mode = token, better_mode(details_of(token), entry_mode)
    end
  end
  return innermost, entry_mode
end

-- Whether a waiter with these details may enter a lock that its owner now holds: one that a user chose,
-- which begins with '='. It can enter from anywhere.
local function may_enter(details)
  if details.reentrant == '' or string.sub(details.owner, 1, 1) ~= '=' then return false end
  local outer = owner_mode(details.owner)
  return outer == 'exclusive' or outer == 'shared' and details.mode == 'shared'
end
