package await

import (
	"fmt"
	"io"
	"time"
)

// Lines is a Progress that writes to w. On a terminal it is one line that is written anew each second, with the time that has gone by; otherwise
// one line for every change. End it with Close.
type Lines struct {
	w      io.Writer
	width  int
	wanted string
	now    func() time.Time
	began  time.Time

	texts chan string
	stop  chan struct{}
	ended chan struct{}
}

// NewLines begins to write. width is that of the terminal, in columns, or 0 if w is none; wanted says what is waited for.
func NewLines(w io.Writer, width int, wanted string, now func() time.Time) *Lines {
	l := &Lines{
		w: w, width: width, wanted: wanted, now: now, began: now(),
		texts: make(chan string), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go l.run()
	return l
}

// Now implements Progress.
func (l *Lines) Now(text string) {
	select {
	case l.texts <- text:
	case <-l.stop:
	}
}

// Close stops writing and returns when the last line is complete. It is called once.
func (l *Lines) Close() {
	close(l.stop)
	<-l.ended
}

func (l *Lines) run() {
	defer close(l.ended)
	var tick <-chan time.Time
	if l.width > 0 {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		tick = ticker.C
	}
	l.print(l.wanted)
	last := ""
	for {
		select {
		case text := <-l.texts:
			if text != last {
				last = text
				l.print(l.wanted + ": " + text)
			}
		case <-tick:
			if last == "" {
				l.print(l.wanted)
			} else {
				l.print(l.wanted + ": " + last)
			}
		case <-l.stop:
			if l.width > 0 {
				_, _ = fmt.Fprintln(l.w)
			}
			return
		}
	}
}

func (l *Lines) print(text string) {
	elapsed := l.now().Sub(l.began).Truncate(time.Second)
	if l.width > 0 {
		// A line that wraps could not be written anew.
		suffix := fmt.Sprintf(" (%s)", elapsed)
		if room := l.width - len(suffix) - 1; room > 0 && len([]rune(text)) > room {
			text = string([]rune(text)[:room])
		}
		// Back to the first column, the text, and what is left of the former one erased.
		_, _ = fmt.Fprintf(l.w, "\r%s%s\x1b[K", text, suffix)
		return
	}
	_, _ = fmt.Fprintf(l.w, "%s (%s)\n", text, elapsed)
}
