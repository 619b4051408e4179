-- Shows the lock with all its holders and waiters.
--
-- ARGV[3] 'past' to show what became of its last holds as well; ''
--
-- It writes nothing, so that it still works on
-- a server that is out of memory or read-only: what has expired is left out, not dropped.
--
-- view

return view(-1, true, ARGV[3] ~= '')
