-- Asks for the lock: a newcomer, a waiter that was woken or whose heartbeat is due, or either of
-- them again after a lost reply. The token makes all of these the same request.
--
-- ARGV[3] ttl        of the lease, in ms
-- ARGV[4] heartbeat  ms until a waiter calls again at the latest; 0: do not wait
-- ARGV[5] mode
-- ARGV[6] owner
-- ARGV[7] about      shown to people: host, user, pid, command, kind, label, one a line
-- ARGV[8] ...        the holders that the caller was told of last, each as id, mode, about, fence,
--                    acquired, ms that its lease may last at most
--
-- { 'granted', fence }
-- { 'busy', view }
-- { 'queued', view, position from 1, ms to sleep unless woken by mail }

local TTL, HEARTBEAT, MODE = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

local MINE = { TOKEN .. ':mode', MODE, TOKEN .. ':owner', ARGV[6], TOKEN .. ':about', ARGV[7] }

reconcile()
-- Nobody waits for a reply to a request that is asked again.
if revoked and has(TOKEN) then drop(TOKEN) end
-- A fence that is behind what the caller has seen: the server was restarted without its data, or a
-- replica took over that was behind.
local known, free = last_fence(), not live and not foreign
for i = 8, free and #ARGV or 0, 6 do
  if tonumber(ARGV[i + 3]) > known then recall(unpack(ARGV, i, i + 5)) end
end
local head = admit()

if holds() then
  extend(TOKEN, TTL)
  redis.call('DEL', KEYS[5])
  return { 'granted', detail(TOKEN, 'fence') }
end

if admissible(MODE) and not head then
  grant(TOKEN, now + TTL, unpack(MINE))
  return { 'granted', fence }
end

if HEARTBEAT == 0 then return { 'busy', view(3, false) } end

-- Alive for two heartbeats and a claim: one of them may be lost on the way.
redis.call('HSET', STATE, TOKEN .. ':alive', int(now + 2 * HEARTBEAT + CLAIM), unpack(MINE))
if not (ticket and redis.call('ZSCORE', QUEUE, TOKEN)) then
  redis.call('HSET', STATE, TOKEN .. ':since', int(now))
  redis.call('ZADD', QUEUE, redis.call('HINCRBY', STATE, 'ticket', 1), TOKEN)
end
local left = redis.call('PTTL', GUARD)
local till = int(now + math.max(left, 0) + DAY)
redis.call('PEXPIREAT', STATE, till)
redis.call('PEXPIREAT', QUEUE, till)

-- Only the head watches for the end of a lease; the others will be the head first.
local position = redis.call('ZRANK', QUEUE, TOKEN) + 1
local sleep = HEARTBEAT
if position == 1 and foreign then
  sleep = math.min(sleep, POLL, left >= 0 and left + 1 or POLL)
elseif position == 1 and live then
  local first = redis.call('ZRANGEBYSCORE', HOLDS, int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  sleep = math.min(sleep, tonumber(first[2] or now) - now + 1)
elseif not live and not foreign then
  -- More dead than go in one call are still ahead.
  sleep = 1
end
return { 'queued', view(3, false), position, sleep }
