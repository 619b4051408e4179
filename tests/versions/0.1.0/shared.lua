



















if ARGV[1] ~= '0' then redis.call('SELECT', ARGV[1]) end

local GUARD, HOLDS, STATE, QUEUE, PAST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local TOKEN = ARGV[2]
local DETAILS = { 'mode', 'owner', 'about', 'since', 'alive', 'fence', 'acquired', 'renewed',
'keep', 'standing', 'by', 'reentrant' }

local CLAIM = 2000           -- how long a lock granted to a waiter waits to be claimed
local BATCH = 1000           -- of the expired and the dead, at most this many go in one call
local POLL = 1000            -- behind another tool's lock, which sends no messages
local DAY = 24 * 3600 * 1000 -- how long the fence and the past outlive their last use
local LAST = 16              -- of the past, so many holds are kept

local function int(number) return string.format('%.0f', number) end


local function clock()
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)
end


local function read_guard() return redis.pcall('GET', GUARD) end
local function write_guard(token, till) redis.call('SET', GUARD, token, 'PXAT', till) end
local function guard_left() return redis.call('PTTL', GUARD) end


local now = clock()
local guard = read_guard()
if type(guard) == 'table' then return guard end





local written, held_mode, fence, ticket, standing, keep = unpack(redis.call('HMGET', STATE,
'guard', 'mode', 'fence', 'ticket', TOKEN .. ':standing', TOKEN .. ':keep'))
local deleted = written and not guard and redis.call('ZCOUNT', HOLDS, int(now), '+inf') > 0
local count = (deleted or guard and guard == written) and redis.call('ZCARD', HOLDS) or 0
local live = count > 0
local foreign = guard and not live

local function detail(token, name) return redis.call('HGET', STATE, token .. ':' .. name) end



local function has(token)
return (live or foreign) and tonumber(redis.call('ZSCORE', HOLDS, token) or 0) >= now
end





local function holds() return not standing and has(TOKEN) end

local function mail_of(token) return string.sub(QUEUE, 1, -6) .. 'mail:' .. token end


local function forget(token, ...)
local fields = { ... }
for _, name in ipairs(DETAILS) do fields[#fields + 1] = token .. ':' .. name end
redis.call('HDEL', STATE, unpack(fields))
end



local function write_on() redis.call('HDEL', STATE, '') end




local function line_about(token, how, ended, outcome)
local details = redis.call('HMGET', STATE, token .. ':acquired', token .. ':fence',
token .. ':mode', token .. ':by', token .. ':about')
for i = 1, 5 do details[i] = details[i] or '' end
return table.concat({ how, int(ended), outcome or '', string.sub(token, 1, 8),
unpack(details) }, '\n')
end


local function record(line)
local length = redis.call('RPUSH', PAST, line)
if length > LAST then redis.call('LTRIM', PAST, -LAST, -1) end
redis.call('PEXPIREAT', PAST, int(now + DAY))
end


local function is_past(token)
local id = string.sub(token, 1, 8)
for _, line in ipairs(redis.call('LRANGE', PAST, 0, -1)) do
local how, its_id = string.match(line, '^(%l+)\n[^\n]*\n[^\n]*\n([^\n]*)')
if its_id == id and how ~= 'expired' then return true end
end
return false
end


local function ending_of(token)
local its_standing = standing
if token ~= TOKEN then its_standing = detail(token, 'standing') end
if its_standing == 'cooling' then return nil end
return its_standing or 'expired'
end


local function record_expired(scored)
if #scored > 0 then write_on() end
for i = math.max(1, #scored - 2 * LAST + 1), #scored, 2 do
local how = ending_of(scored[i])
if how then record(line_about(scored[i], how, scored[i + 1])) end
end
end




local function watch(token, deadline, ...)
write_guard(token, deadline)
redis.call('HSET', STATE, 'guard', token, ...)
local till = int(math.max(tonumber(deadline), now) + DAY)
redis.call('PEXPIREAT', HOLDS, till)
redis.call('PEXPIREAT', STATE, till)
end


local function watch_latest(...)
local latest = redis.call('ZRANGE', HOLDS, -1, -1, 'WITHSCORES')
watch(latest[1], latest[2], ...)
end


local function put(token, deadline, ...)
redis.call('ZADD', HOLDS, int(deadline), token)
if count > 1 then watch_latest(...) else watch(token, int(deadline), ...) end
end





local function extend(ttl)
redis.call('PEXPIREAT', STATE, int(now + ttl + DAY))
put(TOKEN, math.max(now + ttl, tonumber(keep or 0)), TOKEN .. ':renewed', int(now))
end



local function last_fence()
local last = tonumber(fence or 0)
return last and last > 0 and last < 2 ^ 53 - 1 and last or 0
end



local function drop_remains()
if not fence and redis.call('EXISTS', HOLDS) == 1 then
redis.call('DEL', HOLDS)
end
end




local function recall(id, mode, about, its_fence, acquired, ttl)
drop_remains()
if not live or held_mode ~= 'exclusive' then held_mode = mode end
if not redis.call('ZSCORE', HOLDS, id) then count = count + 1 end
live = true
fence = int(math.max(last_fence(), tonumber(its_fence)))
put(id, now + ttl, 'fence', fence, 'mode', held_mode, id .. ':mode', mode, id .. ':about', about,
id .. ':fence', its_fence, id .. ':acquired', acquired, id .. ':renewed', int(now),
id .. ':standing', 'revoked')
end



local function admissible(mode)
if live then
return mode == held_mode and mode ~= 'exclusive'
and (mode == 'shared' or count < tonumber(string.sub(mode, 7)))
end
return not foreign
end

local function live_holds() return redis.call('ZRANGEBYSCORE', HOLDS, int(now), '+inf') end



local function mode_of(owner)
local mode = nil
for _, token in ipairs(live and live_holds() or {}) do
if detail(token, 'owner') == owner and not detail(token, 'standing') then
local its_mode = detail(token, 'mode')
if its_mode == 'exclusive' then return its_mode end
if its_mode == 'shared' then mode = its_mode end
end
end
return mode
end


local function may_enter(token, mode)
local outer = detail(token, 'reentrant') and mode_of(detail(token, 'owner'))
return outer == 'exclusive' or outer == 'shared' and mode == 'shared'
end



local function next_fence(wanted)
local last = last_fence()
return int(wanted > last and wanted or math.max(last + 1, now))
end



local function grant(token, mode, deadline, wanted, ...)
drop_remains()
fence = next_fence(wanted)
if not live or held_mode ~= 'exclusive' then held_mode = mode end
count, live = count + 1, true
put(token, deadline, 'fence', fence, 'mode', held_mode, token .. ':fence', fence,
token .. ':acquired', int(now), token .. ':renewed', int(now), ...)
end


local function settle_mode()
if held_mode ~= 'exclusive' then return end
for _, token in ipairs(live_holds()) do
if detail(token, 'mode') == 'exclusive' then return end
end
held_mode = 'shared'
redis.call('HSET', STATE, 'mode', held_mode)
end

local function drop(token)
redis.call('ZREM', HOLDS, token)
if foreign then return forget(token) end
count = count - 1
if count > 0 then
forget(token)
settle_mode()
watch_latest()
else
live = false
redis.call('DEL', GUARD)
forget(token, 'guard', 'mode')
end
end



local function revoke(spared, by)
for _, token in ipairs(live_holds()) do
local its_standing = detail(token, 'standing')
if not its_standing then
redis.call('HSET', STATE, token .. ':standing', 'revoked', token .. ':by', by or '')
if token == TOKEN then standing = 'revoked' end
elseif its_standing == 'cooling' and not spared then
drop(token)
end
end
end

local function drop_expired()
local expired = redis.call('ZRANGEBYSCORE', HOLDS, '-inf', '(' .. int(now), 'WITHSCORES',
'LIMIT', 0, BATCH)
record_expired(expired)
for i = 1, #expired, 2 do
redis.call('ZREM', HOLDS, expired[i])
forget(expired[i])
end
return #expired / 2
end


local function reconcile()
if deleted then
write_on()
revoke('spared')
watch_latest()
end
if live and (deleted or count > 1) then
local expired = drop_expired()
count = count - expired
live = count > 0
if expired > 0 then settle_mode() end
elseif foreign and written and #live_holds() > 0 then

write_on()
drop_expired()
revoke('spared')
elseif not live and written then
local gone = redis.call('ZRANGE', HOLDS, 0, -1, 'WITHSCORES')
record_expired(gone)
for i = 1, #gone, 2 do forget(gone[i]) end
redis.call('DEL', HOLDS)
redis.call('HDEL', STATE, 'guard', 'mode')
end
deleted = false
end

local function wake(token)
redis.call('RPUSH', mail_of(token), 'look')
redis.call('PEXPIREAT', mail_of(token), int(now + 2 * CLAIM))
end




local function admit()

if not ticket then return nil end
for _ = 1, BATCH do
local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
if not head then break end
local mode = detail(head, 'mode')
if tonumber(detail(head, 'alive') or 0) < now then
redis.call('ZREM', QUEUE, head)
forget(head)
elseif admissible(mode) or may_enter(head, mode) then
redis.call('ZREM', QUEUE, head)
grant(head, mode, now + CLAIM, 0)
wake(head)
else
return head
end
end
local rest = redis.call('ZRANGE', QUEUE, 0, 0)[1]
if rest then return rest end

if not live and not foreign then
redis.call('DEL', STATE)
if fence then
redis.call('HSET', STATE, 'fence', fence)
redis.call('PEXPIREAT', STATE, int(now + DAY))
end
ticket = nil
end
return nil
end


local function past()
local lines = redis.call('LRANGE', PAST, 0, -1)
local expired = written and redis.call('ZRANGEBYSCORE', HOLDS, '-inf', '(' .. int(now),
'WITHSCORES') or {}
for i = 1, #expired, 2 do
local how = ending_of(expired[i])
if how then lines[#lines + 1] = line_about(expired[i], how, expired[i + 1]) end
end
return lines
end











local function view(holders_at_most, with_waiters, with_past)
local holders, waiters, scored = {}, {}, {}
local state, left = foreign and 'foreign' or 'free', guard_left()
if live then
scored = redis.call('ZRANGEBYSCORE', HOLDS, int(now), '+inf', 'WITHSCORES',
'LIMIT', 0, holders_at_most)
left = tonumber(redis.call('ZRANGE', HOLDS, -1, -1, 'WITHSCORES')[2]) - now

state = 'cooling'
end
for i = 1, #scored, 2 do
local token = scored[i]
local its_standing = detail(token, 'standing') or deleted and 'revoked' or ''
if its_standing == '' or state ~= 'held' and its_standing == 'revoked' then
state = its_standing == '' and 'held' or 'revoked'
end
holders[#holders + 1] = { string.sub(token, 1, 8), detail(token, 'owner'),
detail(token, 'mode'), detail(token, 'about'), detail(token, 'fence'),
detail(token, 'acquired'), detail(token, 'renewed'), scored[i + 1], its_standing }
end
for _, token in ipairs(with_waiters and redis.call('ZRANGE', QUEUE, 0, -1) or {}) do
if tonumber(detail(token, 'alive') or 0) >= now then
waiters[#waiters + 1] = { string.sub(token, 1, 8), detail(token, 'mode'),
detail(token, 'about'), detail(token, 'since') }
end
end
return { int(now), state, live and held_mode or '', left, fence or '',
count, holders, redis.call('ZCARD', QUEUE), waiters, with_past and past() or {} }
end
