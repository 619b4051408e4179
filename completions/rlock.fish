# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_rlock_global_optspecs
    string join \n h/help V/version
end

function __fish_rlock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_rlock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_rlock_using_subcommand
    set -l cmd (__fish_rlock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c rlock -n "__fish_rlock_needs_command" -s h -l help -d 'Print help'
complete -c rlock -n "__fish_rlock_needs_command" -s V -l version -d 'Print version'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "exec" -d 'Run a command while holding a lock'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "acquire" -d 'Acquire a lock and print the token that renews and releases it'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "renew" -d 'Make a lock that is held last longer'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "release" -d 'Release a lock that is held'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "inspect" -d 'Show who holds a lock and who waits for it'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l url -d 'The lock server: redis://host:port/db, rediss:// for TLS, unix:///path?db=N, redis+sentinel://host,host/service, redis+cluster://host,host; several --url: a quorum of them; local: for files [env: RLOCK_URL, where spaces separate several]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l prefix -d 'Put before NAME to make the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l io-timeout -d 'Longest wait for a connection or for one reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l password-file -d 'Read the password from the first line of FILE [or env: RLOCK_USERNAME, RLOCK_PASSWORD]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l tls-ca -d 'Trust this certificate authority instead of the system\'s [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l tls-cert -d 'Our certificate, for a server that asks for one [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l tls-key -d 'The key of that certificate [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s t -l ttl -d 'Lease: how soon the lock frees itself if this host dies, not how long the work may take. exec and --while-pid renew it; at least 100ms [env: RLOCK_TTL] [default: 30s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l slots -d 'Hold the lock with at most N holders at once, all of whom say the same N' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s w -l wait -l timeout -d 'Wait at most D; without -n and -w, for ever [env: RLOCK_WAIT]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s E -l conflict-exit-code -d 'Exit status when the lock is busy' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l at-least -d 'Keep others out for at least D from the start, even if it is released sooner; rlock itself does not wait. For cron on hosts whose clocks differ' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l owner -d 'Whose hold it is, for --reentrant [env: RLOCK_OWNER]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l min-replicas -d 'The lock counts only once that many replicas of the server have it [env: RLOCK_MIN_REPLICAS]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l label -d 'Shown to those who wait and by inspect: a job\'s URL, a ticket [env: RLOCK_LABEL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s k -l kill-after -d 'Time between SIGTERM and SIGKILL when the lock is lost, at most a third of the TTL [default: 5s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l on-lost -d 'What to do with the command when the lock is lost' -r -f -a "kill\t''
continue\t''"
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l on-unreachable -d 'When no server answers before the command starts: fail, or run it without a lock' -r -f -a "fail\t''
run\t''"
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s q -l quiet -d 'Say nothing about waiting or being busy, only what went wrong'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s v -l verbose -d 'Say what happens, with times'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s x -l exclusive -d 'Hold the lock alone; the default'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s s -l shared -d 'Share the lock with others who do'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s n -l nonblock -d 'Fail at once if the lock is busy'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l reentrant -d 'Enter again a lock that an enclosing exec, or the same --owner, holds'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l foreground -d 'Keep the command in rlock\'s own process group, as timeout --foreground does'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s h -l help -d 'Print help'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l url -d 'The lock server: redis://host:port/db, rediss:// for TLS, unix:///path?db=N, redis+sentinel://host,host/service, redis+cluster://host,host; several --url: a quorum of them; local: for files [env: RLOCK_URL, where spaces separate several]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l prefix -d 'Put before NAME to make the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l io-timeout -d 'Longest wait for a connection or for one reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l password-file -d 'Read the password from the first line of FILE [or env: RLOCK_USERNAME, RLOCK_PASSWORD]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l tls-ca -d 'Trust this certificate authority instead of the system\'s [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l tls-cert -d 'Our certificate, for a server that asks for one [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l tls-key -d 'The key of that certificate [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s t -l ttl -d 'Lease: how soon the lock frees itself if this host dies, not how long the work may take. exec and --while-pid renew it; at least 100ms [env: RLOCK_TTL] [default: 30s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l slots -d 'Hold the lock with at most N holders at once, all of whom say the same N' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s w -l wait -l timeout -d 'Wait at most D; without -n and -w, for ever [env: RLOCK_WAIT]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s E -l conflict-exit-code -d 'Exit status when the lock is busy' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l at-least -d 'Keep others out for at least D from the start, even if it is released sooner; rlock itself does not wait. For cron on hosts whose clocks differ' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l owner -d 'Whose hold it is, for --reentrant [env: RLOCK_OWNER]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l min-replicas -d 'The lock counts only once that many replicas of the server have it [env: RLOCK_MIN_REPLICAS]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l label -d 'Shown to those who wait and by inspect: a job\'s URL, a ticket [env: RLOCK_LABEL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l while-pid -d 'Leave a keeper behind that renews while this process lives, releases when it ends, and stops it if the lock is lost; $$ in a script' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s q -l quiet -d 'Say nothing about waiting or being busy, only what went wrong'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s v -l verbose -d 'Say what happens, with times'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s x -l exclusive -d 'Hold the lock alone; the default'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s s -l shared -d 'Share the lock with others who do'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s n -l nonblock -d 'Fail at once if the lock is busy'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l reentrant -d 'Enter again a lock that an enclosing exec, or the same --owner, holds'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l json -d 'Print one JSON document, on failure too'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l shell -d 'Print assignments for a shell: s=$(rlock acquire --shell NAME) || exit; eval "$s"'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s h -l help -d 'Print help'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l url -d 'The lock server: redis://host:port/db, rediss:// for TLS, unix:///path?db=N, redis+sentinel://host,host/service, redis+cluster://host,host; several --url: a quorum of them; local: for files [env: RLOCK_URL, where spaces separate several]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l prefix -d 'Put before NAME to make the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l io-timeout -d 'Longest wait for a connection or for one reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l password-file -d 'Read the password from the first line of FILE [or env: RLOCK_USERNAME, RLOCK_PASSWORD]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l tls-ca -d 'Trust this certificate authority instead of the system\'s [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l tls-cert -d 'Our certificate, for a server that asks for one [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l tls-key -d 'The key of that certificate [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s t -l ttl -d 'Lease length from now; default: as last set [env: RLOCK_TTL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s q -l quiet -d 'Say nothing about waiting or being busy, only what went wrong'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s v -l verbose -d 'Say what happens, with times'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l json -d 'Print one JSON document, on failure too'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s h -l help -d 'Print help'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l url -d 'The lock server: redis://host:port/db, rediss:// for TLS, unix:///path?db=N, redis+sentinel://host,host/service, redis+cluster://host,host; several --url: a quorum of them; local: for files [env: RLOCK_URL, where spaces separate several]' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -l prefix -d 'Put before NAME to make the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -l io-timeout -d 'Longest wait for a connection or for one reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -l password-file -d 'Read the password from the first line of FILE [or env: RLOCK_USERNAME, RLOCK_PASSWORD]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l tls-ca -d 'Trust this certificate authority instead of the system\'s [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l tls-cert -d 'Our certificate, for a server that asks for one [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l tls-key -d 'The key of that certificate [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -s q -l quiet -d 'Say nothing about waiting or being busy, only what went wrong'
complete -c rlock -n "__fish_rlock_using_subcommand release" -s v -l verbose -d 'Say what happens, with times'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l json -d 'Print one JSON document, on failure too'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l force -d 'Take the lock away from all who have it, stop their commands, and wait until they have let go'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l now -d 'With --force: free it at once; only if the holders and all they started are known to be dead'
complete -c rlock -n "__fish_rlock_using_subcommand release" -s h -l help -d 'Print help'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l url -d 'The lock server: redis://host:port/db, rediss:// for TLS, unix:///path?db=N, redis+sentinel://host,host/service, redis+cluster://host,host; several --url: a quorum of them; local: for files [env: RLOCK_URL, where spaces separate several]' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l prefix -d 'Put before NAME to make the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l io-timeout -d 'Longest wait for a connection or for one reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l password-file -d 'Read the password from the first line of FILE [or env: RLOCK_USERNAME, RLOCK_PASSWORD]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l tls-ca -d 'Trust this certificate authority instead of the system\'s [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l tls-cert -d 'Our certificate, for a server that asks for one [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l tls-key -d 'The key of that certificate [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s W -l watch -d 'Show it again every second, or every D' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s q -l quiet -d 'Say nothing about waiting or being busy, only what went wrong'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s v -l verbose -d 'Say what happens, with times'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l json -d 'Print one JSON document, on failure too'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l names -d 'Print the names only, one a line'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s h -l help -d 'Print help'

# The names of locks that are held, from the server that RLOCK_URL names; none if it does not answer
# soon.
complete -c rlock -n "__fish_rlock_using_subcommand inspect; or __fish_rlock_using_subcommand release; or __fish_rlock_using_subcommand renew" -f -a "(rlock inspect --quiet --names --io-timeout 500ms 2>/dev/null)"
