-- Holds: finding them, their leases, and the guard that represents them.
--
-- Reads:   holds, state; lock, own, now
-- Changes: guard, holds; in the state 'guard', 'mode', the slots and details of holds; lock.count,
--          lock.live, lock.mode; through delete_details() also `own`

-- The deadline of this token's hold, in any state; nil if there is none or its lease has expired. A
-- hold includes the millisecond of its deadline, as a key does.
local function unexpired_hold(token)
  -- Without either, what is there are remains, which nobody holds.
  if not (lock.live or lock.foreign) then return nil end
  local deadline = tonumber(redis.call('ZSCORE', HOLDS, token) or 0)
  return deadline >= now and deadline or nil
end

-- The deadline of the calling token's hold if it holds the lock: unexpired and neither revoked nor
-- cooling. While another tool holds the lock, there is none, because reconcile() revokes all holds.
local function valid_hold()
  return hold_state(own) == 'held' and unexpired_hold(TOKEN) or nil
end

-- Whether a hold with these details was granted to a waiter that has not claimed it yet.
local function is_unclaimed(details) return details.renewed == '' end

-- Makes the guard show that a hold with the latest deadline is live, and gives every key an expiry.
-- `...` are more fields of the state to write. Only for a guard that is rlock's or absent.
local function set_guard(token, deadline, ...)
  redis.call('SET', GUARD, token, 'PXAT', int(deadline))
  redis.call('HSET', STATE, 'guard', token, ...)
  local expiry = int(math.max(deadline, now) + DAY)
  redis.call('PEXPIREAT', HOLDS, expiry)
  redis.call('PEXPIREAT', STATE, expiry)
end

-- Finds that hold. `...` as for set_guard().
local function set_guard_to_latest(...)
  local token, deadline = unpack(redis.call('ZRANGE', HOLDS, -1, -1, 'WITHSCORES'))
  set_guard(token, tonumber(deadline), ...)
end

-- Gives the hold this deadline, earlier or later than before, and these details. `...` as for
-- set_guard().
local function set_deadline(token, details, deadline, ...)
  redis.call('ZADD', HOLDS, int(deadline), token)
  local field, text = 'details:' .. token, encoded(details)
  if lock.count == 1 then return set_guard(token, deadline, field, text, ...) end
  set_guard_to_latest(field, text, ...)
end

-- Extends the caller's hold to `ttl` from now, or to `not_before` if that is later. The time left is
-- not added. Returns the milliseconds left. PEXPIREAT comes first, so that no holder loses its lock
-- because memory is full. `...` as for set_guard().
local function extend(ttl, not_before, ...)
  redis.call('PEXPIREAT', STATE, int(now + ttl + DAY))
  local deadline = math.max(now + ttl, tonumber(own.keep_until) or 0, not_before)
  own.renewed, own.ttl = int(now), int(ttl)
  set_deadline(TOKEN, own, deadline, ...)
  return deadline - now
end

-- Deletes holds that have no fence: they remain from a state that the server evicted. Without such
-- holds it writes nothing: after its first write, a script continues even if memory is full.
local function drop_remains()
  if lock.fence or lock.count == 0 then return end
  redis.call('UNLINK', HOLDS)
  lock.count = 0
end

-- Other holds can be beside an exclusive one: of its owner, or if the lock was closed. Once it is gone,
-- makes their mode that of the lock. It does not search many holds: it waits until few remain.
local function settle_mode()
  if lock.mode ~= 'exclusive' or lock.count > MAX_LISTED then return end
  local mode = nil
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', HOLDS, int(now), '+inf')) do
    mode = details_of(token).mode
    if mode == 'exclusive' then return end
  end
  lock.mode = mode or lock.mode
  redis.call('HSET', STATE, 'mode', lock.mode)
end

-- The ZREM comes first because it needs no memory.
local function drop_hold(token)
  redis.call('ZREM', HOLDS, token)
  free_slot(token)
  lock.count = lock.count - 1
  if lock.count == 0 then
    lock.live = false
    if not lock.foreign then redis.call('DEL', GUARD) end
    return delete_details(token, 'guard', 'mode', 'slots')
  end
  delete_details(token)
  if lock.foreign then return end
  settle_mode()
  set_guard_to_latest()
end
