-- Shows the lock, with as many holders and waiters as one reply lists.
--
-- ARGV[3] 'past' to show what became of its last holds as well; ''
-- ARGV[4] holders  from which one on, from 0
-- ARGV[5] waiters  from which one on, from 0
--
-- It writes nothing, so that it still works on a server that is out of memory or read-only: what has
-- expired is left out, not dropped.
--
-- view

return view(tonumber(ARGV[4]), LISTED, tonumber(ARGV[5]), ARGV[3] ~= '')
