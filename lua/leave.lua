-- Gives up asking: whatever the token has, a place in the queue or a grant that nobody claimed,
-- is gone afterwards, a request with it that arrives later is refused, and the queue moves up.
--
-- ARGV[3] ttl  that was asked for, in ms
--
-- { 'left', view }

reconcile()

redis.call('ZREM', QUEUE, TOKEN)
redis.call('DEL', KEYS[5])
mark_over(TOKEN, tonumber(ARGV[3]))
if has(TOKEN) then drop(TOKEN) else forget(TOKEN) end
admit()
return { 'left', brief_view() }
