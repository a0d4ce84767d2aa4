package nodeapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Storage is the node's volume and its keys, as the API has them handled. The errors may be statuses; the caller is who asked, such as "user 0".
type Storage interface {
	// RecoveryFile is what GetRecoveryFile answers.
	RecoveryFile() (*nodev1.GetRecoveryFileResponse, error)
	// Unlock opens the volume with what a recovery file held, and returns when it is open. The request is zeroed.
	Unlock(ctx context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error)
	// Seal has the roles stopped and the volume closed, and returns when it is. By then the server has been asked to end, and waits for this call alone: so it
	// must return, and what was begun goes on if the caller is gone. It is not used by other calls any more when Idle is closed.
	Seal(caller string, request *nodev1.SealRequest) error
	// RotateKeys and Reseal are what the RPCs of the names do.
	RotateKeys(ctx context.Context, caller string, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error)
	Reseal(ctx context.Context, caller string, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error)
}

const (
	// maxRecovered is how large what a recovery file holds may be, in bytes: it is a few keys.
	maxRecovered = 64 << 10
	// maxRegisters is how many registers a TPM's bank has.
	maxRegisters = 24
)

// lockedCalls are the RPCs that are answered while the volume is not open.
var lockedCalls = []string{
	nodev1.NodeService_GetStatus_FullMethodName, nodev1.NodeService_WatchStatus_FullMethodName, nodev1.NodeService_GetMetrics_FullMethodName,
	nodev1.NodeService_GetRecoveryFile_FullMethodName, nodev1.NodeService_Unlock_FullMethodName,
}

// shut returns why a call is not answered now; nil: it is.
func (s *Server) shut(method string) error {
	if s.config.Locked == nil || slices.Contains(lockedCalls, method) {
		return nil
	}
	if err := s.config.Locked(); err != nil {
		return failure(err)
	}
	return nil
}

// answeredLast says of an RPC that it is answered when all other calls have ended.
func answeredLast(method string) bool { return method == nodev1.NodeService_Seal_FullMethodName }

// GetRecoveryFile implements the RPC.
func (s *service) GetRecoveryFile(context.Context, *nodev1.GetRecoveryFileRequest) (*nodev1.GetRecoveryFileResponse, error) {
	answer, err := s.config.Storage.RecoveryFile()
	if err != nil {
		return nil, failure(err)
	}
	return answer, nil
}

// Unlock implements the RPC.
func (s *service) Unlock(ctx context.Context, request *nodev1.UnlockRequest) (*nodev1.UnlockResponse, error) {
	defer func() { clear(request.GetRecovered()) }()
	switch n := len(request.GetRecovered()); {
	case n == 0:
		return nil, status.Error(codes.InvalidArgument, "nodeapi: nothing was sent of what the recovery file holds: `reeve node unlock` decrypts it with the recovery key and sends it")
	case n > maxRecovered:
		return nil, status.Errorf(codes.InvalidArgument, "nodeapi: what a recovery file holds has less than %d bytes, and %d were sent", maxRecovered, n)
	}
	answer, err := s.config.Storage.Unlock(ctx, request)
	if err != nil {
		return nil, failure(err)
	}
	return answer, nil
}

// Seal implements the RPC. Its answer is the last that the server gives: the caller's connection stays until it is sent, over TCP too.
func (s *service) Seal(ctx context.Context, request *nodev1.SealRequest) (*nodev1.SealResponse, error) {
	if from, ok := peer.FromContext(ctx); ok {
		release := keep(from.Addr)
		// The answer is sent after this function returns, so a server that is ending must cut this connection off last.
		defer func() {
			if !s.running.ends() {
				release()
			}
		}()
	}
	if err := s.config.Storage.Seal(callerOf(ctx).name, request); err != nil {
		return nil, failure(err)
	}
	return &nodev1.SealResponse{}, nil
}

// RotateKeys implements the RPC.
func (s *service) RotateKeys(ctx context.Context, request *nodev1.RotateKeysRequest) (*nodev1.RotateKeysResponse, error) {
	answer, err := s.config.Storage.RotateKeys(ctx, callerOf(ctx).name, request)
	if err != nil {
		return nil, failure(err)
	}
	return answer, nil
}

// Reseal implements the RPC.
func (s *service) Reseal(ctx context.Context, request *nodev1.ResealRequest) (*nodev1.ResealResponse, error) {
	for _, register := range slices.Sorted(maps.Keys(request.GetPcrs())) {
		if register >= maxRegisters {
			return nil, status.Errorf(codes.InvalidArgument, "nodeapi: a TPM has the registers 0 to %d, and no %d", maxRegisters-1, register)
		}
		if n := len(request.GetPcrs()[register]); n != sha256.Size {
			return nil, status.Errorf(codes.InvalidArgument, "nodeapi: the value of register %d is a SHA-256 of %d bytes, and %d were sent", register, sha256.Size, n)
		}
	}
	answer, err := s.config.Storage.Reseal(ctx, callerOf(ctx).name, request)
	if err != nil {
		return nil, failure(err)
	}
	return answer, nil
}

// errEnding is errStopping with what ended the server, if that was told.
func (s *Server) errEnding() error {
	if cause := context.Cause(s.stopping); cause != nil && !errors.Is(cause, context.Canceled) {
		return status.Errorf(codes.Unavailable, "nodeapi: %v", cause)
	}
	return errStopping
}
