package held

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// answer is a message that is counted until it was sent.
type answer struct {
	message    any // nil: gRPC has it
	connection *Connection
	client     string
	// bytes is what is held against the client, and alone what of it is for this client alone: of what many are sent alike there is one, whoever reads it.
	bytes, alone int
	call         *request
}

// encode hands the message over to gRPC.
func (a *answer) encode() (mem.BufferSlice, error) {
	message, is := a.message.(*Message)
	if !is {
		encoded, err := Encode(a.message.(proto.Message))
		if err != nil {
			return nil, err // it goes with its call
		}
		message = &Message{Own: encoded}
	}
	counts := a.connection.counts
	counts.mu.Lock()
	defer counts.mu.Unlock()
	a.message = nil // its bytes are what is kept
	return (&Message{Shared: message.Shared, Own: message.Own, Sent: func() {
		counts.mu.Lock()
		defer counts.mu.Unlock()
		a.release()
	}}).parts(), nil
}

// Unary has a call hold its request, and its answer until that was read. It is to be inside of what finds out who calls.
func (c *Counts) Unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	end, err := c.carryOut(ctx, request, 0)
	if err != nil {
		return nil, err
	}
	defer end()
	response, err := handler(ctx, request)
	if err != nil {
		return nil, err
	}
	return c.keep(ctx, response)
}

// Stream does the same for streams. Of one that is not read gRPC takes 64 KiB and one message more, or thousands that are so small that what is around them is most of it. So each message counts until it was read.
func (c *Counts) Stream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	end, err := c.carryOut(stream.Context(), nil, 1)
	if err != nil {
		return err
	}
	defer end()
	return handler(service, &keeping{ServerStream: stream, counts: c})
}

type keeping struct {
	grpc.ServerStream
	counts *Counts
}

// SendMsg implements grpc.ServerStream.
func (k *keeping) SendMsg(message any) error {
	message, err := k.counts.keep(k.Context(), message)
	if err != nil {
		return err
	}
	return k.ServerStream.SendMsg(message)
}

// size is that of a message, and of what of it is for one client alone.
func size(message any) (all, alone int) {
	switch message := message.(type) {
	case *Message:
		return len(message.Shared) + len(message.Own), len(message.Own)
	case proto.Message:
		all = proto.Size(message)
	}
	return all, all
}

// carryOut counts a call, and whether it is a stream, until end is called.
func (c *Counts) carryOut(ctx context.Context, request any, streams int) (end func(), err error) {
	bytes, _ := size(request)
	bytes += c.config.Call
	connection := ConnectionOf(ctx)
	if connection == nil {
		return func() {}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	client := connection.client
	tooMany := c.config.Streams > 0 && c.streams[client]+streams > c.config.Streams
	if client != "" && (tooMany || c.held[client]+bytes > c.config.Held) {
		return nil, c.refusal(client)
	}
	add(c.held, client, bytes)
	add(c.streams, client, streams)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		add(c.held, client, -bytes)
		add(c.streams, client, -streams)
	}, nil
}

// refusal is the error of a call of a client that has as much as it may. mu is held.
func (c *Counts) refusal(client string) error {
	return c.config.Refusal(client, c.held[client], c.streams[client])
}

// keep counts an answer until it was sent, or its connection has ended. Where all clients have too much to read, the connection on which the most waits is closed.
func (c *Counts) keep(ctx context.Context, response any) (any, error) {
	switch response := response.(type) {
	case *Message:
		if response.Sent != nil {
			return response, nil
		}
	case proto.Message:
	default:
		return response, nil
	}
	call, is := ctx.Value(requestKey{}).(*request)
	if !is {
		return response, nil
	}
	bytes, alone := size(response)
	bytes, alone = bytes+c.config.Answer, alone+c.config.Answer
	c.mu.Lock()
	defer c.mu.Unlock()
	connection := call.connection
	if connection.ended {
		return response, nil
	}
	client := connection.client
	if client != "" && c.held[client]+bytes > c.config.Held {
		return nil, c.refusal(client)
	}
	for c.allUnread+alone > c.config.AllUnread {
		most := connection
		for other := range c.all {
			if other.unread > most.unread {
				most = other
			}
		}
		if most.end(); most == connection {
			return response, nil
		}
	}
	kept := &answer{message: response, connection: connection, client: client, bytes: bytes, alone: alone, call: call}
	connection.answers[kept] = struct{}{}
	if call.kept == nil {
		call.kept = make(map[*answer]struct{})
	}
	call.kept[kept] = struct{}{}
	kept.hold(1)
	return kept, nil
}

// hold counts an answer: once more, or, by -1, once less. mu is held.
func (a *answer) hold(times int) {
	a.connection.unread += times * a.alone
	a.connection.counts.allUnread += times * a.alone
	add(a.connection.counts.held, a.client, times*a.bytes)
}

// release ends the count of an answer. mu is held.
func (a *answer) release() {
	if _, is := a.connection.answers[a]; is {
		delete(a.connection.answers, a)
		delete(a.call.kept, a)
		a.hold(-1)
	}
}

// callEnded releases what was never sent of a call, since something else became of it, and what gRPC may have thrown away without giving it back, since the stream was reset before its status was on the way. mu is held.
func (r *request) callEnded() {
	for a := range r.kept {
		if !r.answered || a.message != nil {
			a.release()
		}
	}
}
