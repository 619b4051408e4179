







reconcile()

local held = holds()
if held then extend(tonumber(ARGV[3])) end
admit()
return held and { 'renewed', detail(TOKEN, 'fence') } or { 'not-held' }