package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/nodes"
)

const (
	// callerHeld is how many bytes the calls of one caller may hold, on all of its connections: their requests and what is around them while they are under way, and their answers until those were
	// read. It is four lists of a thousand nodes with all that can be said of each. gRPC takes an answer of any size at once, and keeps it until the client reads, after the call has ended.
	callerHeld = 64 << 20
	// mostUnread is how many bytes of answers may wait to be read by all callers, of whom there may be many: a quarter of what the curator may use. What many are sent alike is not among them: a
	// curator that starts sends the directory to a thousand nodes at once, and holds it once.
	mostUnread = 256 << 20
	// callHolds is what a call holds beside its request while it is under way, and answerHolds what is kept of it beside its answer until that was read.
	callHolds   = 64 << 10
	answerHolds = 4 << 10
	// givenBack is the size of the smallest buffer that gRPC gives back to its pool.
	givenBack = 1<<10 + 1
)

// held is a message with the room that it takes until it was sent. gRPC gives its bytes back to a pool when they are written, or when the stream is reset, and held is that pool.
type held struct {
	message    any
	peers      *peers
	connection *peerConnection
	caller     string
	// bytes is what is held against the caller, and alone what of it is for this caller alone: of what many are sent alike there is one, whoever reads it.
	bytes, alone int
	// call is that of which it is an answer, and encoded says that gRPC has it. Both are guarded by the lock of peers.
	call    *request
	encoded bool
}

var _ mem.BufferPool = (*held)(nil)

// Get implements mem.BufferPool.
func (*held) Get(length int) *[]byte {
	made := make([]byte, length)
	return &made
}

// Put implements mem.BufferPool.
func (h *held) Put(*[]byte) {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	h.peers.release(h)
}

// encode hands the message over to gRPC.
func (h *held) encode() (parts mem.BufferSlice, err error) {
	_, alone := size(h.message)
	data := make([]byte, 0, max(givenBack, alone))
	switch message := h.message.(type) {
	case *nodes.Encoded:
		parts, data = mem.BufferSlice{mem.SliceBuffer(message.Shared)}, append(data, message.Own...)
	case proto.Message:
		if data, err = (proto.MarshalOptions{}).MarshalAppend(data, message); err != nil {
			return nil, err // it goes with its call
		}
	}
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	h.encoded, h.message = true, nil // its bytes are what is kept
	// The last one, since each is given back when it was sent itself.
	return append(parts, mem.NewBuffer(&data, h)), nil
}

// keepUnary has a call hold its request, and its answer until that was read. It is to be inside of what finds out who calls.
func (p *peers) keepUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	// What gRPC compresses is not what it gives back.
	if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
		return nil, err
	}
	end, err := p.carryOut(ctx, request)
	if err != nil {
		return nil, err
	}
	defer end()
	endTurn, err := p.takeTurn(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer endTurn()
	response, err := handler(ctx, request)
	if err != nil {
		return nil, err
	}
	return p.keep(ctx, response)
}

// keepStream is the same for streams. Of one that is not read gRPC takes 64 KiB and one message more, a directory perhaps, or thousands that are so small that what is around them is most of it; and it
// keeps them after the call has ended. So each message counts until it was read.
func (p *peers) keepStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
		return err
	}
	end, err := p.carryOut(stream.Context(), nil)
	if err != nil {
		return err
	}
	defer end()
	return handler(service, &keeping{ServerStream: stream, peers: p})
}

type keeping struct {
	grpc.ServerStream
	peers *peers
}

// SendMsg implements grpc.ServerStream.
func (k *keeping) SendMsg(message any) error {
	message, err := k.peers.keep(k.Context(), message)
	if err != nil {
		return err
	}
	return k.ServerStream.SendMsg(message)
}

// size is that of a message, and of what of it is for one caller alone.
func size(message any) (all, alone int) {
	switch message := message.(type) {
	case *nodes.Encoded:
		return len(message.Shared) + len(message.Own), len(message.Own)
	case proto.Message:
		all = proto.Size(message)
	}
	return all, all
}

// carryOut counts a call until end is called.
func (p *peers) carryOut(ctx context.Context, request any) (end func(), err error) {
	bytes, _ := size(request)
	bytes += callHolds
	p.mu.Lock()
	defer p.mu.Unlock()
	connection := connectionOf(ctx)
	if connection == nil || connection.unfinished.caller == "" {
		return func() {}, nil
	}
	caller := connection.unfinished.caller
	if p.held[caller]+bytes > callerHeld {
		return nil, errHeld(caller, p.held[caller])
	}
	p.holds(caller, bytes)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.holds(caller, -bytes)
	}, nil
}

// keep counts an answer until it was sent, or its connection has ended. Where all callers have too much to read, the connection on which the most waits is closed.
func (p *peers) keep(ctx context.Context, response any) (any, error) {
	switch response.(type) {
	case proto.Message, *nodes.Encoded:
	default:
		return response, nil
	}
	bytes, alone := size(response)
	bytes, alone = bytes+answerHolds, alone+answerHolds
	p.mu.Lock()
	defer p.mu.Unlock()
	connection := connectionOf(ctx)
	call, is := ctx.Value(requestKey{}).(*request)
	if connection == nil || connection.ended || !is {
		return response, nil
	}
	caller := connection.unfinished.caller
	if caller != "" && p.held[caller]+bytes > callerHeld {
		return nil, errHeld(caller, p.held[caller])
	}
	for p.unread+alone > mostUnread {
		most := connection
		for other := range p.all {
			if other.unread > most.unread {
				most = other
			}
		}
		if p.end(most); most == connection {
			return response, nil
		}
	}
	h := &held{message: response, peers: p, connection: connection, caller: caller, bytes: bytes, alone: alone, call: call}
	if connection.held == nil {
		connection.held = make(map[*held]struct{})
	}
	connection.held[h] = struct{}{}
	connection.unread += alone
	p.unread += alone
	p.holds(caller, bytes)
	return h, nil
}

// release ends the count of an answer. The caller holds the lock.
func (p *peers) release(h *held) {
	if _, is := h.connection.held[h]; !is {
		return
	}
	delete(h.connection.held, h)
	h.connection.unread -= h.alone
	p.unread -= h.alone
	p.holds(h.caller, -h.bytes)
}

// releaseAll ends the count of the answers on a connection, with which gRPC forgets them. The caller holds the lock.
func (p *peers) releaseAll(connection *peerConnection) {
	for h := range connection.held {
		p.release(h)
	}
}

// callEnded releases what was never sent of a call, since something else became of it, and what gRPC may have thrown away without giving it back, since the stream was reset before its status was
// on the way. The caller holds the lock.
func (p *peers) callEnded(call *request) {
	for h := range call.connection.held {
		if h.call == call && (!call.answered || !h.encoded) {
			p.release(h)
		}
	}
}

// holds has a caller hold so many bytes more; empty: nobody was let in. The caller holds the lock.
func (p *peers) holds(caller string, bytes int) {
	if caller == "" {
		return
	}
	if p.held[caller] += bytes; p.held[caller] == 0 {
		delete(p.held, caller)
	}
}

func errHeld(caller string, held int) error {
	return answer.Errorf(codes.ResourceExhausted, "%s holds %d MiB in this curator with calls that are under way and with answers that were not read, and may hold %d MiB: "+
		"read the answers of former calls, or close their connections, and make fewer calls at once", caller, held>>20, callerHeld>>20)
}
