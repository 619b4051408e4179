# Appends its name, its fence and the time to a file each millisecond until its time is over. The
# first line also has the number of its slot, if it has one.
#
# With `counts`, it adds one to a counter, which it reads at the start and writes at the end. The
# counter takes a write only with a fence that is not lower than the highest that it has seen.
#
# With a storm, another process makes it, at a low priority and until the same time: the processes of
# each kind are bounded, and so is what they do in a millisecond.
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);
use Fcntl qw(:DEFAULT :flock);
use POSIX ();
my ($directory, $name, $seconds, $stubborn, $counts, $storm) = @ARGV;
my $fence = $ENV{RLOCK_FENCE};
$SIG{TERM} = 'IGNORE' if $stubborn;
sub file { sysopen my $file, "$directory/$_[0]", O_RDWR | O_CREAT | $_[1] or die; $file }
my $out = file 'runs', O_APPEND;
sub note {
    my $now = clock_gettime(CLOCK_MONOTONIC);
    syswrite $out, join(' ', $name, $fence, sprintf('%.6f', $now), @_) . "\n";
}
sub counter {
    my ($next) = @_;
    my $file = file 'counter', 0;
    flock $file, LOCK_EX or die;
    sysread $file, my $text, 99;
    my ($value, $highest) = map $_ + 0, split ' ', $text;
    return if $fence < $highest;
    sysseek $file, 0, 0;
    syswrite $file, sprintf '%020d %020d', $next // $value, $fence;
    note 'wrote', $next if defined $next;
    $value // 0;
}
note defined $ENV{RLOCK_SLOT} ? ('slot', $ENV{RLOCK_SLOT}) : ();
my $value = counter if $counts;
my $end = clock_gettime(CLOCK_MONOTONIC) + $seconds;
sub goes_on { clock_gettime(CLOCK_MONOTONIC) < $end }
sub called { open my $name, '>', '/proc/self/comm' or die; syswrite $name, $_[0] }
# Whether this is a new process, which is a child of the one that called.
sub apart { my $pid = fork; defined $pid && !$pid }
# Goes on as an orphan: the process that called ends.
sub orphaned { apart or POSIX::_exit(0) }
sub chains {
    my ($pause, $session) = @_;
    for (1 .. 200) {
        apart or next;
        while (goes_on) { orphaned; POSIX::setsid if $session; sleep $pause }
        POSIX::_exit(0);
    }
}
sub idle {
    for (1 .. 2000) {
        apart or next;
        orphaned;
        sleep 0.2 while goes_on;
        POSIX::_exit(0);
    }
}
sub signals {
    my ($rlock) = @_;
    open my $name, '<', "/proc/$rlock/comm" or return;
    # A script is not a child of its keeper.
    return if <$name> ne "rlock\n";
    while (goes_on) {
        for my $signal (qw(USR1 USR2 WINCH CHLD)) { kill $signal, $rlock for 1 .. 20 }
        sleep 0.001;
    }
}
my %storms = (
    orphans => sub { chains 0.001 },
    sessions => sub { chains 0.005, 1 },
    idle => \&idle,
    signals => \&signals,
    output => sub { syswrite STDERR, 'noise' . 'x' x 1000 . "\n" while goes_on },
);
if ($storm) {
    $SIG{$_} = 'IGNORE' for qw(USR1 USR2);
    my $rlock = getppid;
    # A new process has the name from its beginning.
    called('storm');
    if (apart) {
        setpriority 0, 0, 10;
        $storms{$storm}->($rlock);
        POSIX::_exit(0);
    }
    called('perl');
}
while (clock_gettime(CLOCK_MONOTONIC) < $end) { note; sleep 0.001 }
counter $value + 1 if defined $value;
note 'done';
