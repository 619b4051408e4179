-- Revocation: a single mark, the floor, revokes all holds up to a fence. The standing of a hold
-- that was revoked individually is 'revoked', the time and the operator; that of a reinstated hold
-- is only 'revoked'.
--
-- Reads:   lock.floor, now
-- Changes: lock.floor; in the state 'floor', 'floor:how', 'floor:by', 'floor:at'

-- The state of a hold with these details:
--   'held'     it holds the lock
--   'revoked'  it no longer holds the lock, but its holder may not know yet. It excludes others until
--              its holder releases it or its lease expires
--   'cooling'  its holder released it before its minimum time was up
-- A hold whose fence was lost, because a key was evicted, counts as revoked.
local function hold_state(details)
  if details.standing ~= '' then return string.match(details.standing, '^%l+') end
  return (tonumber(details.fence) or 0) <= lock.floor and 'revoked' or 'held'
end

-- Revokes all holds with a fence up to this one. Each excludes others until its holder releases it
-- or its lease expires. `how` is 'revoked', 'deleted' or 'overwritten'.
local function revoke_up_to(fence, how, by)
  if fence <= lock.floor then return end
  lock.floor = fence
  redis.call('HSET', STATE, 'floor', int(fence), 'floor:how', how,
    'floor:by', string.sub(by, 1, MAX_DETAIL), 'floor:at', int(now))
end

-- How, by whom and when a hold with this standing was revoked: individually, or with all up to the
-- floor.
local function revocation(standing)
  local since, operator = string.match(standing, '^revoked (%d+) (.*)$')
  if since then return 'revoked', operator, tonumber(since) end
  local how, by, at = unpack(redis.call('HMGET', STATE, 'floor:how', 'floor:by', 'floor:at'))
  return how or 'revoked', by or '', tonumber(at or now)
end
