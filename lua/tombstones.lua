-- The tokens of what has ended: their holds were released, or their requests withdrawn. A late request
-- with such a token is rejected.
--
-- The members:
--   a token
--   the id of one whose hold was not found: it keeps a waiter that saw the hold from closing the
--     lock; leave.lua and release.lua add it
--   a token, how its request ended, and by whom, on a line each; see mark_ended()
--   a generation, a space and a fence: the lock was closed for these; see closing.lua
--
-- Reads:   tombstones, holds, history; lock, own, now
-- Changes: tombstones

-- How many tokens are remembered.
local MAX_TOMBSTONES = 1000
-- How long they are remembered in ms, unless the TTL is longer.
local TOMBSTONE_DURATION = 60 * 1000

local function add_tombstone(token, ttl)
  local duration = math.max(ttl, TOMBSTONE_DURATION)
  -- The tombstones that expire first make room. Removing them first keeps the new one.
  local removed = redis.pcall('ZREMRANGEBYRANK', TOMBSTONES, 0, -MAX_TOMBSTONES)
  -- While something else is in place of the tombstones, every request is rejected.
  if is_wrong_type(removed) then return end
  if type(removed) == 'table' then
    return redis.call('ZREMRANGEBYRANK', TOMBSTONES, 0, -MAX_TOMBSTONES)
  end
  -- Tombstones that another client wrote, and that would never make room.
  local odd = removed > 0 and redis.call('ZCOUNT', TOMBSTONES, int(now + TOO_LONG), '+inf') or 0
  if odd > 0 then redis.call('ZREMRANGEBYRANK', TOMBSTONES, -odd, -1) end
  redis.call('ZADD', TOMBSTONES, int(now + duration), token)
  local left = redis.call('PTTL', TOMBSTONES)
  if left < duration then redis.call('PEXPIREAT', TOMBSTONES, int(now + duration)) end
end

-- Marks a request that its client did not end itself, so that a later request with its token learns
-- how: 'superseded' or 'removed'; and by whom. This tombstone is next to the token's own, which comes
-- last, so that it is kept even if all others last longer.
local function mark_ended(token, ttl, how, by)
  add_tombstone(token .. '\n' .. how .. '\n' .. by, ttl)
  add_tombstone(token, ttl)
end

-- How and by whom the calling token's request was ended, as a reply; nil if nobody else ended it.
local function how_ended()
  local score = redis.call('ZSCORE', TOMBSTONES, TOKEN)
  for _, tombstone in ipairs(score and redis.call('ZRANGEBYSCORE', TOMBSTONES, score, score) or {}) do
    local how, by = string.match(tombstone, '^[^\n]*\n(%l+)\n(.*)$')
    if how and string.sub(tombstone, 1, #TOKEN + 1) == TOKEN .. '\n' then return { how, by } end
  end
end

-- A cooling hold was released, even if its tombstone is lost.
local function has_tombstone(token)
  local cooling = token == TOKEN and own.status == 'cooling' and unexpired_hold(token)
  return cooling or tonumber(redis.call('ZSCORE', TOMBSTONES, token) or 0) >= now
end

-- Why the calling token does not hold the lock, as three values of a reply: how it ended (as in the
-- history, or 'unknown'), how many milliseconds ago (-1 if unknown), and by whom.
local function why_not_held()
  local deadline = tonumber(redis.call('ZSCORE', HOLDS, TOKEN) or 0)
  if deadline > 0 and deadline < now then return 'expired', now - deadline, '' end
  if unexpired_hold(TOKEN) and hold_state(own) == 'revoked' then
    local how, by, at = revocation(own.status)
    if own.fence == '' then how = 'forgotten' end
    return how, math.max(now - at, 0), by
  end
  local how, at, by, complete = recorded(TOKEN)
  if how then return how, math.max(now - at, 0), by end
  if has_tombstone(TOKEN) then return 'released', -1, '' end
  -- Details without a hold: the key of the holds was deleted.
  if own.fence ~= '' then return 'forgotten', -1, '' end
  -- A complete history would contain it.
  return complete and 'unknown' or 'expired', -1, ''
end
