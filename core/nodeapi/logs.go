package nodeapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	names "github.com/reeveproject/reeve/proto/identity"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// logChunk is how much of a log is sent at a time, as far as lines end there, and how much is read at a time to find them.
	logChunk = 64 << 10
	// maxLine is the longest line that is sent whole. What a role writes is not bounded, what the node holds in memory of it is.
	maxLine = 256 << 10
)

// ReadLog implements the RPC. What is written while it runs is not sent.
func (s *service) ReadLog(request *nodev1.ReadLogRequest, stream grpc.ServerStreamingServer[nodev1.ReadLogResponse]) error {
	role := request.GetRole()
	if !names.ValidName(role) {
		return status.Errorf(codes.InvalidArgument, "nodeapi: %q is not the name of a role: `reeve status` lists the roles of this node", role)
	}
	path, ok := s.config.LogPath(role)
	if !ok {
		return noLog(role)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return noLog(role)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "nodeapi: the log of role %s: %v", role, err)
	}
	defer file.Close()
	start, end, err := part(file, request.GetTail())
	if err != nil {
		return status.Errorf(codes.Internal, "nodeapi: the log of role %s: %v", role, err)
	}
	send := func(data []byte) error {
		select {
		case <-s.stopping:
			return errStopping
		default:
			return stream.Send(&nodev1.ReadLogResponse{Data: data})
		}
	}
	return sendLines(io.NewSectionReader(file, start, end-start), send)
}

// shrinkTries is how often a log is looked at that becomes shorter meanwhile: the core empties one that is too large, which takes a role some
// megabytes of writing each time.
const shrinkTries = 5

// part returns which part of a file is asked for: its last lines, or all of it for a tail of 0.
func part(file *os.File, tail uint32) (start, end int64, err error) {
	for range shrinkTries {
		var info os.FileInfo
		if info, err = file.Stat(); err != nil {
			return 0, 0, err
		}
		if !info.Mode().IsRegular() {
			return 0, 0, fmt.Errorf("%s is not a regular file (%s)", file.Name(), info.Mode())
		}
		if tail == 0 {
			return 0, info.Size(), nil
		}
		if start, err = tailStart(file, info.Size(), tail); !errors.Is(err, errShrunk) {
			return start, info.Size(), err
		}
	}
	return 0, 0, err
}

// errShrunk says that a log was emptied while it was read.
var errShrunk = errors.New("it became shorter while it was read: try again")

func noLog(role string) error {
	return status.Errorf(codes.NotFound, "nodeapi: role %s has no log on this node, since it never ran here: `reeve status` lists the roles of this node", role)
}

// tailStart returns where the last lines of the first size bytes of a file begin, reading from the end only as much as they need. A last line
// that has no end yet is one.
func tailStart(file io.ReaderAt, size int64, lines uint32) (int64, error) {
	block := make([]byte, logChunk)
	found := uint32(0)
	for end := size; end > 0; {
		from := max(0, end-logChunk)
		part := block[:end-from]
		if n, err := file.ReadAt(part, from); n < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = errShrunk
			}
			return 0, err
		}
		for at := len(part); ; {
			if at = bytes.LastIndexByte(part[:at], '\n'); at < 0 {
				break
			}
			// The end of the very last line begins none.
			if from+int64(at) == size-1 {
				continue
			}
			if found++; found == lines {
				return from + int64(at) + 1, nil
			}
		}
		end = from
	}
	return 0, nil
}

// sendLines sends what can be read, in chunks of whole lines.
func sendLines(log io.Reader, send func([]byte) error) error {
	reader := bufio.NewReaderSize(log, maxLine)
	var chunk []byte
	for {
		line, err := nextLine(reader)
		if err != nil && !errors.Is(err, io.EOF) {
			return status.Errorf(codes.Internal, "nodeapi: reading a log: %v", err)
		}
		if len(chunk) > 0 && (err != nil || len(chunk)+len(line) > logChunk) {
			if err := send(chunk); err != nil {
				return err
			}
			// What was handed over belongs to the stream.
			chunk = nil
		}
		if err != nil {
			return nil
		}
		chunk = append(chunk, line...)
	}
}

// nextLine returns the next line with its end, valid until the next call, or io.EOF if there is none. A line that is too long is cut and says
// so; a last line that has no end gets one.
func nextLine(reader *bufio.Reader) ([]byte, error) {
	line, err := reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		more := 0
		for errors.Is(err, bufio.ErrBufferFull) {
			var rest []byte
			rest, err = reader.ReadSlice('\n')
			more += len(bytes.TrimSuffix(rest, []byte{'\n'}))
		}
		if more > 0 {
			line = fmt.Appendf(line, " [%d more bytes]", more)
		}
	}
	switch {
	case len(line) == 0 || err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case line[len(line)-1] != '\n':
		return append(bytes.Clone(line), '\n'), nil
	default:
		return line, nil
	}
}
