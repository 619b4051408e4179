-- Gives up a request: its position in the queue, or a grant that it did not claim, is gone
-- afterwards, a request with its token that arrives later is refused, and the queue moves up.
--
-- ARGV[3] ttl  that was asked for, in ms
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
