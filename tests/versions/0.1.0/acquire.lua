
























local TTL, HEARTBEAT, MODE = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local AT_LEAST, REENTRANT, FENCE = tonumber(ARGV[6]), ARGV[10] ~= '', tonumber(ARGV[12])

reconcile()

if FENCE > 0 and not holds() and (has(TOKEN) or is_past(TOKEN)) then
return { 'busy', view(3, false) }
end

if standing == 'revoked' and has(TOKEN) then drop(TOKEN) end


local known = last_fence()
for i = 13, foreign and 0 or #ARGV, 6 do
if tonumber(ARGV[i + 3]) > known then recall(unpack(ARGV, i, i + 5)) end
end
local head = admit()

if holds() then
if AT_LEAST > 0 then
write_on()
keep = int(tonumber(detail(TOKEN, 'acquired')) + AT_LEAST)
redis.call('HSET', STATE, TOKEN .. ':keep', keep)
end
local own = detail(TOKEN, 'fence')
if FENCE > 0 and tonumber(own) ~= FENCE then
write_on()
own = next_fence(FENCE)
redis.call('HSET', STATE, 'fence', own, TOKEN .. ':fence', own)
end
extend(TTL)
redis.call('DEL', KEYS[5])
return { 'granted', own }
end


local enclosing = nil
for token in string.gmatch(ARGV[9], '(%S+) ') do
if has(token) then enclosing = token end
end

local owner = ARGV[7]
if owner == '' and enclosing then owner = detail(enclosing, 'owner') or '' end
if owner == '' then owner = ARGV[8] end
local MINE = { TOKEN .. ':mode', MODE, TOKEN .. ':owner', owner, TOKEN .. ':about', ARGV[11] }


local entered = REENTRANT and mode_of(owner)
if entered == 'shared' and MODE == 'exclusive' then return { 'upgrade' } end
if entered or admissible(MODE) and not head then
if AT_LEAST > 0 then
MINE[7], MINE[8] = TOKEN .. ':keep', int(now + AT_LEAST)
end
if ticket then redis.call('ZREM', QUEUE, TOKEN) end
grant(TOKEN, MODE, now + math.max(TTL, AT_LEAST), FENCE, unpack(MINE))
return { 'granted', fence }
end

if enclosing then return { 'inside' } end
if HEARTBEAT == 0 then return { 'busy', view(3, false) } end


if REENTRANT then
MINE[#MINE + 1], MINE[#MINE + 2] = TOKEN .. ':reentrant', '1'
end
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




local position = redis.call('ZRANK', QUEUE, TOKEN) + 1
local sleep = HEARTBEAT
if position == 1 and foreign then
sleep = math.min(sleep, POLL, left >= 0 and left + 1 or POLL)
elseif position == 1 and live then
local awaited = (MODE == held_mode or held_mode == 'exclusive') and MODE ~= 'exclusive' and 0 or -1
local hold = redis.call('ZRANGE', HOLDS, awaited, awaited, 'WITHSCORES')
sleep = math.max(math.min(sleep, tonumber(hold[2]) - now + 1), 1)
elseif count == 1 then
local hold = redis.call('ZRANGE', HOLDS, 0, 0, 'WITHSCORES')
local claimed_until = tonumber(detail(hold[1], 'acquired') or 0) + CLAIM
if tonumber(hold[2]) == claimed_until then
sleep = math.max(math.min(sleep, claimed_until - now + 1), 1)
end
elseif not live and not foreign then

sleep = 1
end
return { 'queued', view(3, false), position, sleep }