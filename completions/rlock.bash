# bash completion for rlock, with bash 4.4 or later. It uses bash-completion if that is loaded.
# Generated from tests/generated/completion.bash and from the command line.
_rlock_subcommands='exec acquire renew release inspect -h --help -V --version'
_rlock_durations='10s 30s 1m 5m 1h'
_rlock_server='--password-file --prefix --tls-ca --tls-cert --tls-key --url'

# Sets `takes` to the options of a subcommand.
_rlock_options() {
    case $1 in
        exec) takes='--url --prefix --io-timeout --password-file --tls-ca --tls-cert --tls-key -q --quiet -v --verbose -t --ttl -x --exclusive -s --shared --slots -n --nonblock -w --wait --timeout --next --supersede -E --conflict-exit-code --at-least --reentrant --owner --min-replicas --label -k --kill-after --on-lost --on-unreachable --foreground --die-with-parent -h --help' ;;
        acquire) takes='--url --prefix --io-timeout --password-file --tls-ca --tls-cert --tls-key -q --quiet -v --verbose -t --ttl -x --exclusive -s --shared --slots -n --nonblock -w --wait --timeout --next --supersede -E --conflict-exit-code --at-least --reentrant --owner --min-replicas --label --json --shell --while-pid -h --help' ;;
        renew) takes='--url --prefix --io-timeout --password-file --tls-ca --tls-cert --tls-key -q --quiet -v --verbose -t --ttl --min-replicas --json -h --help' ;;
        release) takes='--url --prefix --io-timeout --password-file --tls-ca --tls-cert --tls-key -q --quiet -v --verbose --json --force --now --id --reason -h --help' ;;
        inspect) takes='--url --prefix --io-timeout --password-file --tls-ca --tls-cert --tls-key -q --quiet -v --verbose -a --all --attention --older-than --sort --json --names -W --watch --servers -t --ttl --min-replicas -h --help' ;;
        *) takes='' ;;
    esac
}

# Sets `takes` to what the value of an option is. Fails if the option takes none.
_rlock_value() {
    case $1 in
        --at-least | --io-timeout | --kill-after | --older-than | --timeout | --ttl | --wait | -k | -t | -w) takes='DURATION' ;;
        --password-file | --tls-ca | --tls-cert | --tls-key) takes='FILE' ;;
        --conflict-exit-code | --id | --label | --min-replicas | --owner | --prefix | --reason | --slots | --url | --while-pid | -E) takes='NOTHING' ;;
        --watch | -W) takes='OPTIONAL' ;;
        --sort) takes='age name waiting lease' ;;
        --on-unreachable) takes='fail run' ;;
        --on-lost) takes='kill continue' ;;
        *) return 1 ;;
    esac
}

# The words of the command up to the cursor, in `words`. Bash also splits them at the characters of
# COMP_WORDBREAKS, such as colons. `starts` has the place of each in COMP_WORDS.
_rlock_words() {
    local rest=${COMP_LINE:0:COMP_POINT} index word
    for ((index = 0; index <= COMP_CWORD; index++)); do
        if [[ $index == 0 || $rest == [[:space:]]* ]]; then
            words+=("")
            starts+=("$index")
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        word=${COMP_WORDS[index]}
        # The cursor may be inside the last word.
        ((index < COMP_CWORD)) || word=$rest
        words[-1]+=$word
        rest=${rest#"$word"}
    done
}

# The quoted form of the names that begin as typed. Any client may have chosen a name. It runs the
# rlock in PATH, because a typed ./rlock may be anything.
_rlock_names() {
    local -a names
    mapfile -t names < <(timeout 1 rlock inspect --quiet --names --io-timeout 500ms "${server[@]}" \
        2>/dev/null </dev/null)
    local quote="" typed=$current name text
    case $typed in \'* | \"*) quote=${typed:0:1} typed=${typed:1} ;; esac
    [[ $quote == "'" ]] || typed=${typed//\\/}
    # Bash replaces only what follows the last colon or other character of COMP_WORDBREAKS.
    local replaced=$1
    [[ $quote == "'" ]] || replaced=${replaced//\\/}
    local before=${typed%"${replaced#["'\""]}"}
    for name in "${names[@]}"; do
        [[ $name == "$typed"* ]] || continue
        text=${name#"$before"}
        case $quote in
            "'") text=${text//"'"/"'\\''"} ;;
            '"')
                # Inside double quotes, nothing keeps ! from the history.
                [[ $text != *!* ]] || continue
                text=${text//\"/\\\"} text=${text//\$/\\\$} text=${text//\`/\\\`}
                ;;
            *) [[ -z $text ]] || printf -v text %q "$text" ;;
        esac
        COMPREPLY+=("$text")
    done
}

# Completes a command that begins at this word, as if rlock were not before it.
_rlock_command() {
    local offset
    for offset in _comp_command_offset _command_offset; do
        if declare -F "$offset" >/dev/null; then
            "$offset" "${starts[$1]}"
            return
        fi
    done
    if (($1 == ${#words[@]} - 1)) && [[ $current != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$current" | sort -u)
    else
        compopt -o default
    fi
}

_rlock() {
    COMPREPLY=()
    local -a words=() starts=() server=()
    _rlock_words
    local last=$((${#words[@]} - 1)) current=${words[-1]}
    local subcommand=${words[1]} choices="" takes index word options=yes expected=NAME
    ((last > 1)) || expected=SUBCOMMAND options=""
    for ((index = 2; index < last; index++)); do
        word=${words[index]}
        if [[ $options && $word == -- ]]; then
            options=""
        elif [[ $options && $word == -?* ]]; then
            [[ " $_rlock_server " != *" ${word%%=*} "* ]] || server+=("$word")
            # Of several short options together, only the last can take the next word.
            [[ ! $word =~ ^-[a-zA-Z]+([a-zA-Z])$ ]] || word=-${BASH_REMATCH[1]}
            _rlock_value "$word" || continue
            if [[ $takes == OPTIONAL ]]; then
                # Unlike a name, a duration begins with a digit.
                [[ ${words[index + 1]} == [0-9]* ]] && ((index + 1 < last)) && index=$((index + 1))
                continue
            fi
            index=$((index + 1))
            if ((index == last)); then
                expected=$takes options=""
            elif [[ " $_rlock_server " == *" $word "* ]]; then
                server+=("${words[index]}")
            fi
        elif [[ $expected == COMMAND ]]; then
            _rlock_command "$index"
            return
        elif [[ $subcommand == exec ]]; then
            expected=COMMAND
        else
            expected=""
        fi
    done
    if [[ $options && $current == -*=* ]] && _rlock_value "${current%%=*}"; then
        [[ $takes != OPTIONAL ]] || takes=DURATION
        expected=$takes
    elif [[ $options && $current == -* ]]; then
        _rlock_options "$subcommand"
        expected=CHOICE choices=$takes
    fi
    case $expected in
        "" | NOTHING) return ;;
        CHOICE) ;;
        SUBCOMMAND) choices=$_rlock_subcommands ;;
        DURATION) choices=$_rlock_durations ;;
        FILE)
            compopt -o default
            return
            ;;
        NAME)
            _rlock_names "$2"
            return
            ;;
        COMMAND)
            _rlock_command "$last"
            return
            ;;
        *) choices=$expected ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$2")
}

complete -o nosort -F _rlock rlock
