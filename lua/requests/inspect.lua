-- Shows the lock, with as many holders and waiters as one reply lists.
--
-- ARGV[3] history  'past' to include how the last holds ended; ''
-- ARGV[4] holders  index of the first one to list, from 0
-- ARGV[5] waiters  index of the first one to list, from 0
--
-- It writes nothing, so that it works on a server that is out of memory or read-only. The reply
-- leaves out what has expired.
--
-- Replies:
-- view()

return view(tonumber(ARGV[4]), MAX_LISTED, waiters(tonumber(ARGV[5])), ARGV[3] ~= '' and history())
