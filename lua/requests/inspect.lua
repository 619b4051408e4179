-- Shows the lock, with as many holders and waiters as one reply lists.
--
-- ARGV[3] history  'past' to show how its last holds ended as well; ''
-- ARGV[4] holders  from which one on, from 0
-- ARGV[5] waiters  from which one on, from 0
--
-- It writes nothing, so that it works on a server that is out of memory or read-only: what has expired
-- is left out of the reply, not dropped.
--
-- Replies:
-- view()

return view(tonumber(ARGV[4]), MAX_LISTED, waiters(tonumber(ARGV[5])), ARGV[3] ~= '' and history())
