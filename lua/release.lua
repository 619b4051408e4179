-- Ends a hold, or lets it cool until it has been kept long enough, and hands the lock to the head of
-- the queue. The token is over, whatever it was.
--
-- ARGV[3] outcome  of the command, for the record: 'exit N', 'signal N', 'lost' if it was stopped
--                  because its lease could not be renewed in time; ''
--
-- { 'released' }
-- not_held()

local OUTCOME = ARGV[3]

reconcile()

local mine = has(TOKEN)
local held = mine and not standing_of(standing, own_fence)
local reply = held and { 'released' } or not_held()
local ttl = tonumber(lease or 0)
-- By its id, which everybody can see, a hold is not released; one that was forgotten by the server
-- and reinstated by its id is, with a token that has more to it.
local id = string.sub(TOKEN, 1, 8)
local gone = nil
if TOKEN ~= id then
  if mine and standing ~= 'cooling' then gone = TOKEN elseif has(id) then gone = id end
end

-- For the record, if it is not there yet.
local line = nil
if gone then
  local how, by = 'expired', ''
  if not held then how, by = ending_of(gone) end
  if how == 'expired' then how = OUTCOME == 'lost' and 'lost' or 'released' end
  line = how and line_about(gone, how, now, OUTCOME, by)
end

local cools = held and tonumber(keep or 0) > now
if cools or not gone then write_on() end
if cools then
  uncount(TOKEN)
  redis.call('HSET', STATE, TOKEN .. ':standing', 'cooling')
  put(TOKEN, keep)
elseif gone then
  drop(gone)
end
-- One that waits has nothing to release, and goes on waiting.
if mine or not (ticket and redis.call('ZSCORE', QUEUE, TOKEN)) then mark_over(TOKEN, ttl) end
local head = admit()
-- The end that it waits for may be nearer now.
if cools and head then wake(head) end
-- Last, so that nothing about the record keeps the lock from moving on.
if line then record(line) end
return reply
