-- Ends a hold and hands the lock to the head of the queue.
--
-- { 'released' }
-- { 'not-held' }

reconcile()

local held = holds()
-- One whose hold was revoked, or forgotten and recalled by its id, leaves for good as well.
if has(TOKEN) then
  drop(TOKEN)
elseif #TOKEN > 8 and has(string.sub(TOKEN, 1, 8)) then
  drop(string.sub(TOKEN, 1, 8))
end
admit()
return { held and 'released' or 'not-held' }
