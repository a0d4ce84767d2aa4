package nodeapi

import (
	"bytes"
	"context"
	"fmt"
	"math"
)

const (
	// logChunk is how much of a log is sent at a time, as far as lines end there, and how much is read at a time.
	logChunk = 64 << 10
	// maxLine is the longest line that is sent whole. What a role writes is not bounded, what the node holds in memory of it is.
	maxLine = 256 << 10
)

// lineSender sends what it is fed in chunks of whole lines. It holds little, and a receiver that is slow holds up whoever feeds it: what is not read waits
// in the files.
type lineSender struct {
	// ctx ends when nobody waits for more.
	ctx  context.Context
	send func([]byte) error
	// chunk is whole lines that are to be sent. line is the beginning of one that has no end yet, and more is how much of it was left out.
	chunk []byte
	line  []byte
	more  int
	// skip is how many lines are left out before any is sent, and limit how many are sent then; 0: all.
	skip, limit int
}

// Write takes what comes next of a log.
func (s *lineSender) Write(data []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	for rest := data; len(rest) > 0; {
		part, after, ends := bytes.Cut(rest, []byte{'\n'})
		kept := part[:min(len(part), maxLine-len(s.line))]
		s.line = append(s.line, kept...)
		s.more += len(part) - len(kept)
		if ends {
			if err := s.endLine(); err != nil {
				return 0, err
			}
		}
		rest = after
	}
	return len(data), nil
}

// end gives an end to a line that will get no other.
func (s *lineSender) end() error {
	if len(s.line) == 0 {
		return nil
	}
	return s.endLine()
}

// note sends a line of the node's own.
func (s *lineSender) note(text string) error {
	if err := s.end(); err != nil {
		return err
	}
	_, err := s.Write([]byte("--- reeve: " + text + " ---\n"))
	return err
}

func (s *lineSender) endLine() error {
	if s.more > 0 {
		s.line = fmt.Appendf(s.line, " [%d more bytes]", s.more)
	}
	s.line = append(s.line, '\n')
	if len(s.chunk)+len(s.line) > logChunk {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if s.skip > 0 {
		s.skip--
	} else {
		s.chunk = append(s.chunk, s.line...)
		if s.limit--; s.limit == 0 {
			s.skip = math.MaxInt
		}
	}
	s.more = 0
	if s.line = s.line[:0]; cap(s.line) > logChunk {
		s.line = nil
	}
	return nil
}

// flush sends all whole lines.
func (s *lineSender) flush() error {
	if len(s.chunk) == 0 {
		return nil
	}
	chunk := s.chunk
	// What was handed over belongs to the stream.
	s.chunk = nil
	return s.send(chunk)
}
