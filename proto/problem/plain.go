package problem

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ofTransport is how begins what gRPC says of its connection where it has nothing to say of the call.
var ofTransport = []string{
	"stream terminated by RST_STREAM", "context deadline exceeded", "context canceled", "closing transport due to", "the connection is draining", "transport is closing",
	"error reading from server", "keepalive ping failed", "received context error while waiting",
}

// Plain returns what an RPC failed of, in words for people: what the other side said, and of a call that was cut off that it was.
func Plain(err error) string {
	failure, ok := status.FromError(err)
	if !ok || failure.Code() == codes.OK {
		return err.Error()
	}
	message := failure.Message()
	for _, beginning := range ofTransport {
		if strings.HasPrefix(message, beginning) {
			return cutOff(failure.Code())
		}
	}
	return message
}

func cutOff(code codes.Code) string {
	switch code {
	case codes.DeadlineExceeded:
		return "there was no answer in time"
	case codes.Canceled:
		return "the call was ended before there was an answer"
	default:
		return "the connection was lost before there was an answer"
	}
}
