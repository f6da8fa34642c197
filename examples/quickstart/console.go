package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A console prints lines, below which there may be one of progress. It is for one goroutine.
type console struct {
	out      io.Writer
	terminal bool          // progress overwrites itself
	every    time.Duration // how often there is progress
	shown    int           // length of the progress on the screen
	err      error         // the first of out
}

// newConsole returns a console that prints to f.
func newConsole(f *os.File) *console {
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return &console{out: f, terminal: true, every: time.Second}
	}
	return &console{out: f, every: 3 * time.Second}
}

// printf prints like fmt.Printf, in the place of the progress.
func (c *console) printf(format string, args ...any) {
	c.clear()
	c.write(fmt.Sprintf(format, args...))
}

// progress shows a line until something else is printed. Without a terminal it is a line like any other.
func (c *console) progress(line string) {
	if !c.terminal {
		c.write(line + "\n")
		return
	}
	c.clear()
	c.write(line)
	c.shown = len(line)
}

// clear wipes the progress out, with spaces because not every terminal knows a code for it.
func (c *console) clear() {
	if c.shown > 0 {
		c.write(fmt.Sprintf("\r%*s\r", c.shown, ""))
		c.shown = 0
	}
}

func (c *console) write(s string) {
	if c.err == nil {
		_, c.err = io.WriteString(c.out, s)
	}
}
