-- Makes the lease last for another ttl from now, for the one who holds it.
--
-- ARGV[3] ttl  in ms; '': as long as it was
--
-- { 'renewed', fence, ms until it expires }
-- not_held()

reconcile()

local reply = not holds() and not_held()
if not reply then
  local about, deadline = detail(TOKEN, 'about'), 0
  -- A process counts on what it has: exec, or a keeper.
  if string.match(about, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)') ~= 'acquire' then
    deadline = tonumber(redis.call('ZSCORE', HOLDS, TOKEN))
  end
  local ttl = tonumber(ARGV[3]) or tonumber(lease)
  reply = { 'renewed', own_fence, extend(ttl, deadline) }
end
admit()
return reply
