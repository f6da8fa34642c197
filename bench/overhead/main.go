// Command overhead measures what hedging costs: a bare transport, hedgerow, cristalhq/hedgedhttp and failsafe-go do the
// same work in turns, in one run.
//
//	go run ./overhead                # everything, about five minutes on an idle machine
//	go run ./overhead -short         # what CI checks the ratios of (go test ./overhead), about a minute
//	go run ./overhead -json out.json # and every sample as JSON
//	go run ./overhead -rounds 50 -filter 'HTTP/1.1, 1 g' -contenders 'cancelled|fixed' # a closer look
//	go run ./overhead -markdown      # the table of docs/overhead.md instead of the full ones
//
// # What is compared
//
// No-op settings: the base answers at once, without a network, as the http protocol of an [http.Transport] or as a
// RoundTripper that no library can know; on one processor a call costs what it computes, on several, peers that hand
// each call to another goroutine spread it, and what they show depends on how idle the machine is. Loopback settings: a
// server in another process answers GETs with 1 KiB of JSON, over HTTP/1.1 or over HTTP/2 without TLS (h2c, with prior
// knowledge: encryption would cost both sides the same and hide a difference). Fixed delays are a second, so that no
// hedge is due; what learns its delay (hedgerow's zero Config, failsafe-go by quantile) hedges when it sees fit, and
// the column "hedges %" tells. In the settings where hedges fire, the server answers the first request of one call in 20
// after 20 times the hedge delay, which is the same for all contenders, and the others at once.
//
// Three more show what a hedger must do at least: a bare transport whose calls can be cancelled, one that starts and stops a
// timer for each as well, and, over the no-op base, one that also looks up the host, could race, refills a budget and notes
// the latency. None of them hedges.
//
// # How
//
// The contenders take turns, in an order that rotates and turns around from round to round, so that what disturbs the
// machine disturbs all of them. Each has a process of its own: one would pay for what another leaves behind, such as a
// pool of goroutines, which every collection of the garbage scans. Over the no-op base a process lives for one round;
// over loopback for some, with its connections, because opening them costs more than it tells; it is replaced so that
// the luck of one process, such as the layout of its memory, does not decide. The setting "one process" has them all in
// one, for comparison.
//
// Numbers are medians over the rounds. "vs bare" is the median of the ratios within each round, with its quartiles;
// "added" the median of the differences within each round; "of best" its share of the least that a peer adds.
// "fastest" is the same with the fastest round of each, because noise only makes a round slower. "cpu" is "vs bare" for
// the processor time of the client's process. Allocations and bytes are the process's, connections and goroutines too:
// the former from its start, the latter when the calls have ended, the idle connections are closed and the garbage is
// collected.
//
// A target is met if the median is within its bound. Over loopback its interval of 95 % confidence follows, which is wide
// where the machine is busy, and one more line has all rounds of a protocol together.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
)

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		exit(play(role, os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run is the command.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("overhead", flag.ContinueOnError)
	flags.SetOutput(progress)
	short := flags.Bool("short", false, "fewer settings and calls, and fewer rounds over loopback")
	rounds := flags.Int("rounds", 0, "rounds over the no-op base (default 15); twice as many over loopback, two thirds with -short")
	filter := flags.String("filter", "", "only settings whose name matches this regular expression")
	who := flags.String("contenders", "", "only contenders whose name matches this regular expression, and the bare one")
	file := flags.String("json", "", "write everything to this file as JSON")
	markdown := flags.Bool("markdown", false, "print the main table in Markdown instead of the full ones")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*filter)
	if err != nil {
		return fmt.Errorf("-filter: %w", err)
	}

	whom, err := regexp.Compile(*who)
	if err != nil {
		return fmt.Errorf("-contenders: %w", err)
	}
	r, err := measureAll(ctx, plan{short: *short, rounds: *rounds, wanted: wanted, whom: whom}, progress)
	if err != nil {
		return err
	}
	if *file != "" {
		text, err := json.MarshalIndent(r, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*file, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	if *markdown {
		return r.writeMarkdown(out)
	}
	return r.writeText(out)
}
