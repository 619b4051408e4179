
# The names of held locks, from the server in RLOCK_URL; none if it does not answer soon.
complete -c rlock -n "__fish_rlock_using_subcommand inspect; or __fish_rlock_using_subcommand release; or __fish_rlock_using_subcommand renew" -f -a "(rlock inspect --quiet --names --io-timeout 500ms 2>/dev/null)"
