-- Reconciliation: brings the lock up to date before anything is decided.
--
-- Reads:   holds, queue; lock, now
-- Changes: guard, holds, state, history; lock, own

-- An idle lock keeps its fence, its generation, the newest request with --supersede and the clients
-- that were turned away, and nothing else. `...` are more keys to delete.
local function become_idle(...)
  redis.call('UNLINK', STATE, ...)
  -- A lock that was never granted is the same as one that was never requested.
  if not lock.fence then lock.generation = '' end
  if lock.fence then redis.call('HSET', STATE, 'fence', lock.fence, 'generation', lock.generation) end
  if lock.newest then redis.call('HSET', STATE, 'newest', lock.newest) end
  if lock.skipped then redis.call('HSET', STATE, 'skipped', lock.skipped) end
  redis.call('PEXPIREAT', STATE, int(now + DAY))
  lock.ticket, lock.written, lock.notified = nil, nil, nil
  lock.nominated, lock.revoked_up_to = '', 0
  own = decoded('')
end

-- Drops holds whose leases have expired, up to the limit for one call.
local function drop_expired()
  local expired = redis.call('ZRANGEBYSCORE', HOLDS, '-inf', '(' .. int(now), 'WITHSCORES',
    'LIMIT', 0, BATCH)
  if #expired == 0 then return end
  write_nothing()
  local tokens, entries = {}, expired_entries(expired)
  for i = 1, #expired, 2 do
    free_slot(expired[i])
    delete_details(expired[i])
    tokens[#tokens + 1] = expired[i]
  end
  redis.call('ZREM', HOLDS, unpack(tokens))
  record(entries)
  lock.count = lock.count - #tokens
  lock.cleanup_pending = #tokens == BATCH
    and redis.call('ZCOUNT', HOLDS, '-inf', '(' .. int(now)) > 0
end

local function reconcile()
  -- No hold of rlock is left. Those on record remain from a state that was lost.
  if not lock.written then return end
  -- A lease whose deadline another client has overwritten ends one TTL from now.
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', HOLDS, int(now + TOO_LONG), '+inf', 'LIMIT', 0, BATCH)) do
    redis.call('ZADD', HOLDS, int(now + (tonumber(details_of(token).ttl) or 0)), token)
  end
  -- No hold is left, but none has ended: their key was deleted. This is a loss of data like any other.
  if is_free() then
    redis.call('HDEL', STATE, 'generation')
    lock.generation = ''
  end
  if lock.deleted then
    write_nothing()
    revoke_up_to(last_fence(), 'deleted', '')
    set_guard_to_latest()
    lock.deleted = false
  elseif lock.foreign and lock.revoked_up_to < last_fence() then
    -- When the other tool's key is gone, these holds exclude others again until they end.
    write_nothing()
    revoke_up_to(last_fence(), 'overwritten', '')
  end
  -- Nothing can have expired: there is only the hold whose guard exists.
  if lock.live and lock.count == 1 then return end
  if not lock.live and not lock.foreign and is_queue_empty() then
    -- All leases have expired, and there are no waiters.
    write_nothing()
    local entries = expired_entries(redis.call('ZRANGE', HOLDS, -HISTORY_LENGTH, -1, 'WITHSCORES'))
    lock.count = 0
    become_idle(HOLDS)
    return record(entries)
  end
  drop_expired()
  if lock.live then
    settle_mode()
  elseif lock.count == 0 then
    redis.call('HDEL', STATE, 'guard', 'mode', 'slots')
  end
end
