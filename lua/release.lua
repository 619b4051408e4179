-- Ends a hold, or lets it cool until it has been kept long enough, and hands the lock to the head of
-- the queue.
--
-- ARGV[3] outcome  of the command, for the record: 'exit N', 'signal N', 'lost' if it was stopped
--                  because its lease could not be renewed in time; ''
--
-- { 'released' }
-- { 'not-held' }

local OUTCOME = ARGV[3]

-- For the record, if it is not there yet.
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
  -- The end that it waits for may be nearer now.
  local head = admit()
  if head then wake(head) end
  return { 'released' }
end
-- By its id, which everybody can see, a hold is not released; one that was forgotten by the server
-- and recalled by its id is, with a token that has more to it.
local id = string.sub(TOKEN, 1, 8)
if TOKEN ~= id and has(TOKEN) and standing ~= 'cooling' then
  let_go(TOKEN)
elseif TOKEN ~= id and has(id) then
  let_go(id)
end
admit()
return { held and 'released' or 'not-held' }
