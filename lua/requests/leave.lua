-- Withdraws a request: removes it from the queue, or drops a grant that it did not claim. A later
-- request with its token is rejected. If the lock may now be another waiter's, the first one is woken
-- and asks for it. The script is short, because it must reach a frozen server at once; see build/.
--
-- ARGV[3] ttl   of the request, in ms
-- ARGV[4] busy  'busy' if its client was turned away because the lock is busy; ''
--
-- Replies:
-- { 'left' }

reconcile()

local is_head = lock.ticket and redis.call('ZRANK', QUEUE, TOKEN) == 0
local held = unexpired_hold(TOKEN)
local was_queued = redis.call('ZREM', QUEUE, TOKEN) == 1
if ARGV[4] ~= '' and (was_queued or held) then record_skip(own.about) end
redis.call('DEL', MAIL)
-- If the server has forgotten a hold, this keeps a waiter that saw it from closing the lock.
if not (held or was_queued) then add_tombstone(id_of(TOKEN), tonumber(ARGV[3])) end
add_tombstone(TOKEN, tonumber(ARGV[3]))
-- An expired hold that was not dropped yet keeps its details, so that its slot is freed with it.
if held then drop_hold(TOKEN) elseif was_queued then delete_details(TOKEN) end
if is_head or held or is_nominated(TOKEN) then wake_first() end
return { 'left' }
