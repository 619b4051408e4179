-- Asks for the lock: a newcomer, a waiter that was woken or whose heartbeat is due, or either of
-- them again after a lost reply. The token makes all of these the same request.
--
-- ARGV[3] ttl        of the lease, in ms
-- ARGV[4] heartbeat  ms until a waiter calls again at the latest; 0: do not wait
-- ARGV[5] mode       'exclusive', 'shared' or 'slots:N'
-- ARGV[6] at least   ms from the grant for which the lock is kept, even if released sooner
-- ARGV[7] owner      chosen by the user; '': that of the enclosing hold, or the next
-- ARGV[8] fresh      an owner that nobody else is
-- ARGV[9] enclosing  the holds of this lock that the caller is inside of or was, the innermost last,
--                    with a space after each
-- ARGV[10] 'reentrant' to enter again what the owner holds; ''
-- ARGV[11] about     shown to people: host, user, pid, command, kind, label, one a line
-- ARGV[12] fence     that the hold is to have, if no larger one was granted here; 0: any. One
--                    lock on several servers has to have the same fence on most of them
-- ARGV[13] attempt   larger each time the token is asked with. One that is not larger is a
--                    duplicate, or was overtaken: it changes nothing
-- ARGV[14] life      of the lock when the caller was told of the following; ''
-- ARGV[15] ...       the holders that the caller was told of last, each as id, about, fence,
--                    acquired, ms that its lease may last at most
--
-- { 'granted', fence }
-- { 'busy', view }
-- { 'inside' }   it would wait for the hold that the caller is inside of
-- { 'upgrade' }  exclusive inside of a shared hold: never
-- { 'queued', view, position from 1, ms to sleep unless woken by mail }
-- { 'again' }    nothing is decided yet; to be asked again at once, as another attempt
-- { 'over', as in not_held() }  the token was released, or the request given up
-- { 'ahead', ms }  the last fence is so far ahead of the server's clock that it is not believed

local TTL, HEARTBEAT, MODE = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local AT_LEAST, REENTRANT, FENCE = tonumber(ARGV[6]), ARGV[10] ~= '', tonumber(ARGV[12])
local ATTEMPT, LIFE = tonumber(ARGV[13]), ARGV[14]

reconcile()
if is_over(TOKEN) then return { 'over', unpack(not_held(), 2) } end
if leftovers then return { 'again' } end
if attempt and ATTEMPT <= tonumber(attempt) then
  -- A grant that was not claimed yet lasts for less than the caller would believe.
  local until_claimed = tonumber(detail(TOKEN, 'acquired') or 0) + CLAIM
  if holds() and tonumber(redis.call('ZSCORE', HOLDS, TOKEN)) ~= until_claimed then
    return { 'granted', own_fence }
  end
  return { 'again' }
end
local furthest = math.max(last_fence(), FENCE)
if is_ahead(furthest) then
  return { 'ahead', math.floor(math.min(furthest - micros, 2 ^ 53) / 1000) }
end
-- To be put back, or to have its fence raised, where it was revoked meanwhile.
if FENCE > 0 and not holds() then
  local how = recorded(TOKEN)
  if has(TOKEN) or how and how ~= 'expired' then return { 'busy', brief_view() } end
end
-- Nobody waits for a reply to a request that is asked again.
if has(TOKEN) and standing_of(standing, own_fence) == 'revoked' then drop(TOKEN) end
-- The server has lost its data since the caller was told, or a replica took over that was behind.
for i = 15, LIFE ~= '' and not foreign and #ARGV or 0, 5 do
  if LIFE ~= life or tonumber(ARGV[i + 2]) > last_fence() then reinstate(unpack(ARGV, i, i + 4)) end
end
local head = admit()
if leftovers then return { 'again' } end

if holds() then
  if AT_LEAST > 0 then keep = int(tonumber(detail(TOKEN, 'acquired')) + AT_LEAST) end
  if FENCE > 0 and tonumber(own_fence) ~= FENCE then
    fence = next_fence(FENCE)
    own_fence = fence
  end
  extend(TTL, 0, 'fence', fence, TOKEN .. ':fence', own_fence, TOKEN .. ':keep', keep or '0',
    TOKEN .. ':attempt', ARGV[13])
  redis.call('DEL', KEYS[5])
  return { 'granted', own_fence }
end

-- The innermost of them that is a hold still; and how the lock may be entered through them.
local enclosing, entered = nil, nil
for token in string.gmatch(ARGV[9], '(%S+) ') do
  if has(token) then
    enclosing = token
    local explicit, its_fence, mode =
      unpack(redis.call('HMGET', STATE, token .. ':standing', token .. ':fence', token .. ':mode'))
    if not standing_of(explicit, its_fence) and (mode == 'exclusive' or mode == 'shared') then
      entered = entered == 'exclusive' and entered or mode
    end
  end
end

local owner, its_named = ARGV[7], ARGV[7] ~= ''
if its_named then
  entered = mode_of(owner)
elseif enclosing then
  owner = detail(enclosing, 'owner') or ''
  its_named = detail(enclosing, 'named')
end
if owner == '' then owner = ARGV[8] end
local MINE = { 'life', life and life ~= '' and life or string.sub(ARGV[8], -12),
  TOKEN .. ':mode', MODE, TOKEN .. ':owner', owner,
  TOKEN .. ':about', string.sub(ARGV[11], 1, LONGEST),
  TOKEN .. ':ttl', ARGV[3], TOKEN .. ':attempt', ARGV[13] }
local function mine(name, value)
  MINE[#MINE + 1], MINE[#MINE + 2] = TOKEN .. ':' .. name, value
end
if its_named then mine('named', '1') end

-- Past the queue too: who waits in it waits for this owner.
if not REENTRANT then entered = nil end
if entered == 'shared' and MODE == 'exclusive' then return { 'upgrade' } end
if entered or admissible(MODE) and not head then
  if AT_LEAST > 0 then mine('keep', int(now + AT_LEAST)) end
  if ticket then redis.call('ZREM', QUEUE, TOKEN) end
  grant(TOKEN, MODE, now + math.max(TTL, AT_LEAST), FENCE, its_named and owner, unpack(MINE))
  return { 'granted', fence }
end

if enclosing then return { 'inside' } end
if HEARTBEAT == 0 then return { 'busy', brief_view() } end

-- Alive for two heartbeats and a claim: one of them may be lost on the way.
life = MINE[2]
if REENTRANT then mine('reentrant', '1') end
redis.call('HSET', STATE, TOKEN .. ':alive', int(now + 2 * HEARTBEAT + CLAIM), unpack(MINE))
if not (ticket and redis.call('ZSCORE', QUEUE, TOKEN)) then
  redis.call('HSET', STATE, TOKEN .. ':since', int(now))
  local place = redis.call('HINCRBY', STATE, 'ticket', 1)
  redis.call('ZADD', QUEUE, place, TOKEN)
end
local left = guard_left()
local till = int(now + math.max(left, 0) + DAY)
redis.call('PEXPIREAT', STATE, till)
redis.call('PEXPIREAT', QUEUE, till)

-- The head watches for the end of a lease: of the last if it wants to be alone, else of the first.
-- The second looks a little later, in case the head is dead. Any other waiter is told when it becomes
-- the head.
local function awaited(mode)
  local joins = (mode == held_mode or held_mode == 'exclusive') and mode ~= 'exclusive'
  local which = joins and 0 or -1
  return tonumber(redis.call('ZRANGE', HOLDS, which, which, 'WITHSCORES')[2]) + 1
end

local position = redis.call('ZRANK', QUEUE, TOKEN) + 1
local sleep = HEARTBEAT
if position == 1 then tell(TOKEN) end
if position == 1 and foreign then
  sleep = math.min(sleep, POLL, left >= 0 and left + 1 or POLL)
elseif position == 1 and live then
  sleep = math.min(sleep, awaited(MODE) - now)
elseif position == 2 and live then
  sleep = math.min(sleep, awaited(detail(head, 'mode')) + GRACE - now)
end
return { 'queued', brief_view(), position, math.max(sleep, 1) }
