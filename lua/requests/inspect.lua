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
local entries = ARGV[3] ~= '' and history(tonumber(ARGV[3])) or {}
return view(from, MAX_LISTED, with_waiters(entries, from))
