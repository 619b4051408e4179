-- Gives up a request: removes it from the queue, or drops a grant that it did not claim. A later
-- request with its token is rejected, and the queue moves up.
--
-- ARGV[3] ttl  of the request, in ms
--
-- Replies:
-- { 'left', view }

reconcile()

redis.call('ZREM', QUEUE, TOKEN)
redis.call('DEL', MAIL)
mark_over(TOKEN, tonumber(ARGV[3]))
if unexpired_hold(TOKEN) then drop_hold(TOKEN) else delete_details(TOKEN) end
admit()
return { 'left', brief_view() }
