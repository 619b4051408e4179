-- Makes the lease last for another ttl from now, for the one who holds it.
--
-- ARGV[3] ttl  in ms
--
-- { 'renewed', fence }
-- { 'not-held' }

reconcile()

local held = holds()
if held then extend(tonumber(ARGV[3])) end
admit()
return held and { 'renewed', detail(TOKEN, 'fence') } or { 'not-held' }
