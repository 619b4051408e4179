# Appends its name, its fence and the time to a file each millisecond until its time is over. The
# first line also has the number of its slot, if it has one.
#
# With `counts`, it adds one to a counter, which it reads at the start and writes at the end. The
# counter takes a write only with a fence that is not lower than the highest that it has seen.
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);
use Fcntl qw(:DEFAULT :flock);
my ($directory, $name, $seconds, $stubborn, $counts) = @ARGV;
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
while (clock_gettime(CLOCK_MONOTONIC) < $end) { note; sleep 0.001 }
counter $value + 1 if defined $value;
note 'done';
