-- Takes the lock away from all who have it. Neither the queue nor the fence is touched.
--
-- ARGV[3] 'now'  to free it at once, another tool's lock too; '': only revoke the holds, so that the
--                lock moves on when their holders have let go; another tool cannot be told
-- ARGV[4] by     who does it, for the record
--
-- { 'revoked', view before }

reconcile()

local before = view(-1, false)
if ARGV[3] ~= '' then
  write_on()
  for _, token in ipairs(redis.call('ZRANGE', HOLDS, 0, -1)) do
    if detail(token, 'standing') ~= 'cooling' then
      redis.call('HSET', STATE, token .. ':by', ARGV[4])
      record(line_about(token, 'revoked', now))
    end
    forget(token)
  end
  redis.call('DEL', GUARD, HOLDS)
  redis.call('HDEL', STATE, 'guard', 'mode')
  count, live, foreign = 0, false, false
elseif not foreign then
  write_on()
  revoke(nil, ARGV[4])
end
admit()
return { 'revoked', before }
