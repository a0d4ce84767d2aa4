package problem

import (
	"errors"
	"strconv"
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
	message, unconnected := unwrap(err, failure.Message())
	if unconnected && strings.HasSuffix(message, "context deadline exceeded") {
		return "there was no connection in time"
	}
	for _, beginning := range ofTransport {
		if strings.HasPrefix(message, beginning) {
			return cutOff(failure.Code())
		}
	}
	return message
}

// unwrap takes off a message what gRPC puts around it: that it tried several times, and that there was no connection.
func unwrap(err error, message string) (reason string, unconnected bool) {
	var last interface{ GRPCStatus() *status.Status }
	if strings.HasPrefix(message, "max retries exhausted: ") && errors.As(err, &last) {
		message = last.GRPCStatus().Message()
	}
	quoted, unconnected := strings.CutPrefix(message, "connection error: desc = ")
	if reason, err := strconv.Unquote(quoted); unconnected && err == nil {
		message = strings.TrimPrefix(strings.TrimPrefix(reason, "transport: "), "Error while dialing: ")
	}
	return message, unconnected
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
