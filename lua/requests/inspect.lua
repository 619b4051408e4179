-- Shows the lock, with one page of its holders and waiters: as many as one reply lists.
--
-- ARGV[3] history  'history' to include how the last holds ended; ''
-- ARGV[4] from     index of the first holder and of the first waiter to list, from 0
--
-- It writes nothing, so that it works on a server that is out of memory or read-only. The reply
-- leaves out what has expired.
--
-- Replies:
-- view(), and unless this page is the last one, where the next page begins

local from = tonumber(ARGV[4])
local shown = view(from, MAX_LISTED, waiters(from), ARGV[3] ~= '' and history())
local number_of_holders, number_of_waiters = shown[7], shown[9]
local next_page = from + MAX_LISTED
if math.max(number_of_holders, number_of_waiters) > next_page then shown[#shown + 1] = next_page end
return shown
