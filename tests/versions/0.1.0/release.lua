









local OUTCOME = ARGV[3]


local function line_of(token)
local how = ending_of(token)
if how == 'expired' then how = OUTCOME == 'lost' and 'lost' or 'released' end
return how and line_about(token, how, now, OUTCOME)
end

local function let_go(token)
local line = line_of(token)
drop(token)
if line then record(line) end
end

reconcile()

local held = holds()
if held and tonumber(keep or 0) > now then
local line = line_of(TOKEN)
write_on()
redis.call('HSET', STATE, TOKEN .. ':standing', 'cooling')
put(TOKEN, keep)
record(line)

local head = admit()
if head then wake(head) end
return { 'released' }
end


local id = string.sub(TOKEN, 1, 8)
if TOKEN ~= id and has(TOKEN) and standing ~= 'cooling' then
let_go(TOKEN)
elseif TOKEN ~= id and has(id) then
let_go(id)
end
admit()
return { held and 'released' or 'not-held' }