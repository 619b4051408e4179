-- Revocation: of all holds up to a fence, `revoked_up_to`, or of one. The status of a hold that was
-- revoked individually is 'revoked', the time and the operator; that of a closed lock is only
-- 'revoked'.
--
-- Reads:   lock.revoked_up_to, now
-- Changes: lock.revoked_up_to; in the state 'revoked_up_to' and its details

-- Whether a hold with these details was revoked individually.
local function is_removed(details) return string.find(details.status, '^revoked ') ~= nil end

local function is_of_closed_lock(details) return details.status == 'revoked' end

-- The state of a hold with these details:
--   'held'     it holds the lock
--   'revoked'  it no longer holds the lock, but its holder may not know yet. It excludes others until
--              its holder releases it or its lease expires
--   'cooling'  its holder released it before its minimum time was up
-- A hold whose fence was lost, because a key was evicted, counts as revoked.
local function hold_state(details)
  if details.status ~= '' then return string.match(details.status, '^%l+') end
  return (tonumber(details.fence) or 0) <= lock.revoked_up_to and 'revoked' or 'held'
end

-- Revokes all holds with a fence up to this one. Each excludes others until its holder releases it
-- or its lease expires. `how` is 'revoked', 'deleted' or 'overwritten'.
local function revoke_up_to(fence, how, by)
  if fence <= lock.revoked_up_to then return end
  lock.revoked_up_to = fence
  redis.call('HSET', STATE, 'revoked_up_to', int(fence), 'revoked_up_to:how', how,
    'revoked_up_to:by', string.sub(by, 1, MAX_DETAIL), 'revoked_up_to:at', int(now))
end

-- How, by whom and when a hold with this status was revoked: individually, or with all up to the
-- revoked_up_to.
local function revocation(status)
  local since, operator = string.match(status, '^revoked (%d+) (.*)$')
  if since then return 'revoked', operator, tonumber(since) end
  local how, by, at = unpack(redis.call('HMGET', STATE, 'revoked_up_to:how', 'revoked_up_to:by',
    'revoked_up_to:at'))
  return how or 'revoked', by or '', tonumber(at or now)
end
