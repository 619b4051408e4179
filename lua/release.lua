-- Ends a hold and hands the lock to the head of the queue.
--
-- { 'released' }
-- { 'not-held' }

reconcile()

local held = holds(TOKEN)
if held then drop(TOKEN) end
admit()
return { held and 'released' or 'not-held' }
