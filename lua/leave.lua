-- Gives up asking: whatever the token has, a place in the queue or a grant that nobody claimed,
-- is gone afterwards, and the next in line moves up.
--
-- { 'left', view }

reconcile()

redis.call('ZREM', QUEUE, TOKEN)
redis.call('DEL', KEYS[5])
if has(TOKEN) then drop(TOKEN) else forget(TOKEN) end
admit()
return { 'left', view(3, false) }
