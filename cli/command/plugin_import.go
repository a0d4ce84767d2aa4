package command

import (
	"context"
	"errors"
	"io"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	"github.com/reeveproject/reeve/proto/plainfile"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// importFile gives an executable to a node, which keeps it and says what it is.
func importFile(ctx context.Context, cluster *target.Target, file, nodeName string) (*nodev1.ImportPluginResponse, error) {
	executable, err := openExecutable(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = executable.Close() }()
	node, err := cluster.FindNode(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	api, err := cluster.NodeAPI(ctx, node)
	if err != nil {
		return nil, err
	}
	imported, err := importPlugin(ctx, api, executable)
	if err != nil {
		next := "A plugin is an executable for the node's platform that serves reeve.role.v1."
		if status.Code(err) == codes.ResourceExhausted {
			next = "Make room on the disk of the node."
		}
		return nil, fault.FromRPC(err, "node "+node.ID+" does not take "+file, next)
	}
	return imported, nil
}

func openExecutable(file string) (*os.File, error) {
	executable, err := plainfile.Open(file)
	if err != nil {
		return nil, fault.FileOr(fault.Usage, err, "cannot read the plugin", "Give the file of the executable.")
	}
	return executable, nil
}

// importChunk is how much of an executable is sent at a time: well below the MiB that a node takes.
const importChunk = 256 << 10

// importPlugin sends an executable to a node. It has no time limit: how long the transfer takes depends on the link. The node itself bounds how long the
// plugin may take to answer.
func importPlugin(ctx context.Context, api nodev1.NodeServiceClient, from io.Reader) (*nodev1.ImportPluginResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.ImportPlugin(ctx)
	if err != nil {
		return nil, err
	}
	for {
		chunk := make([]byte, importChunk)
		n, err := io.ReadFull(from, chunk)
		if n > 0 {
			// io.EOF says that the node has answered already: CloseAndRecv has its answer.
			if sendErr := stream.Send(&nodev1.ImportPluginRequest{Data: chunk[:n]}); sendErr != nil {
				if errors.Is(sendErr, io.EOF) {
					break
				}
				return nil, sendErr
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}
