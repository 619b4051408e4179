-- Shows the lock, with one page of its holders and waiters: as many as one reply lists.
--
-- ARGV[3] history  how many of the last holds to show, or 'history' for all; '' for none
-- ARGV[4] from     index of the first holder and of the first waiter to list, from 0
--
-- It writes nothing, so that it works on a server that is out of memory or read-only. The reply
-- leaves out what has expired.
--
-- Replies:
-- view()

local from = tonumber(ARGV[4])
local records = ARGV[3] ~= '' and history(tonumber(ARGV[3])) or {}
local waiters = redis.call('ZRANGE', QUEUE, from, from + MAX_LISTED - 1, 'WITHSCORES')
for i = 1, #waiters, 2 do
  local shown, alive = shown_waiter(waiters[i], waiters[i + 1])
  if alive then records[#records + 1] = shown end
end
return view(from, MAX_LISTED, records)
