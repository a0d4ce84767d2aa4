package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/await"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

func (c *commands) kubernetesImage() *cobra.Command {
	return group("image", "Images of containers on the nodes", c.kubernetesImageLoad())
}

// imageOptions are the flags of `reeve kubernetes image load`.
type imageOptions struct {
	nodes   []string
	dryRun  bool
	timeout time.Duration
}

func (c *commands) kubernetesImageLoad() *cobra.Command {
	var options imageOptions
	cmd := &cobra.Command{
		Use:   "load FILE",
		Short: "Put images from an archive onto nodes, whose pods need no registry for them then",
		Long: `load puts the images of an archive onto nodes: one that "docker save" has written, or one with the layout of OCI, which may be compressed with gzip. FILE is the archive; - is the
standard input. Images are there under the names that they have in the archive. A pod uses them if its imagePullPolicy is IfNotPresent or Never.

Without --node they are put onto all nodes whose ` + workerRole + ` works, side by side; those that have the role and take none at present are named. It fails if a node has not got them that should
have; the others have them then.`,
		Example: `  docker save registry.example.org/app:1 | reeve kubernetes image load -
  reeve kubernetes image load app.tar --node reeve-0a1b --node reeve-2c3d`,
		RunE: func(cmd *cobra.Command, given []string) error {
			images, err := c.openArchive(given[0])
			if err != nil {
				return err
			}
			defer images.close()
			return c.withTarget(cmd.Context(), func(cluster *target.Target) error {
				return c.loadImages(cmd.Context(), cluster, images, options)
			})
		},
	}
	cmd.Flags().StringArrayVar(&options.nodes, "node", nil, "a node to put them onto; may be repeated (default all whose "+workerRole+" works)")
	cmd.Flags().DurationVar(&options.timeout, "timeout", 30*time.Minute, "how long it may take at most")
	cmd.Flags().BoolVar(&options.dryRun, "dry-run", false, "say onto which nodes they would be put, and do nothing")
	complete(cmd, "node", c.nodeNames)
	return cmd
}

// archive is a file with images, or what comes from the standard input.
type archive struct {
	name string
	from io.Reader
	// file is nil where it can only be read once, and size is not known then.
	file *os.File
	size int64
	end  io.Closer
}

func (c *commands) openArchive(name string) (*archive, error) {
	if name == "-" {
		return &archive{name: name, from: c.Stdin}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fault.File(err, "cannot read the archive", "Give one that `docker save` has written, or - for the standard input.")
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		_ = file.Close()
		return nil, fault.Wrap(fault.Failed, err, "cannot read the archive", "")
	case info.IsDir():
		_ = file.Close()
		return nil, fault.New(fault.Usage, name+" is a directory", "Give an archive that `docker save` has written, or put the layout of OCI into one with tar.")
	case !info.Mode().IsRegular():
		return &archive{name: name, from: file, end: file}, nil
	}
	return &archive{name: name, file: file, size: info.Size(), end: file}, nil
}

func (a *archive) close() {
	if a.end != nil {
		_ = a.end.Close()
	}
}

// readers returns as many readers of the whole archive. Where it can only be read once they all go as fast as the slowest one; one that is closed holds up nobody.
func (a *archive) readers(n int) []io.ReadCloser {
	readers := make([]io.ReadCloser, n)
	if a.file != nil {
		for i := range readers {
			readers[i] = io.NopCloser(io.NewSectionReader(a.file, 0, a.size))
		}
		return readers
	}
	writers := make([]*io.PipeWriter, n)
	for i := range readers {
		readers[i], writers[i] = io.Pipe()
	}
	// Who waits for the standard input cannot be woken: if nobody reads any more, the process ends.
	go distribute(a.from, writers)
	return readers
}

func distribute(from io.Reader, to []*io.PipeWriter) {
	buffer := make([]byte, imageChunk)
	for len(to) > 0 {
		n, err := from.Read(buffer)
		if n > 0 {
			to = slices.DeleteFunc(to, func(one *io.PipeWriter) bool {
				_, closed := one.Write(buffer[:n])
				return closed != nil
			})
		}
		if err != nil {
			for _, one := range to {
				_ = one.CloseWithError(err)
			}
			return
		}
	}
}

// imageChunk is how much of an archive is sent at a time.
const imageChunk = 256 << 10

// upload is an archive on its way to a node.
type upload struct {
	client kubernetesv1.WorkerServiceClient
	node   *output.ImageLoadNode
	// code is why it failed.
	code fault.Code
	// sent is how much was sent, and done says that it is over.
	sent atomic.Int64
	done atomic.Bool
}

func (u *upload) fail(reason string, code fault.Code) {
	u.node.Result, u.node.Reason, u.code = output.ImagesFailed, reason, code
}

func (c *commands) loadImages(ctx context.Context, cluster *target.Target, images *archive, options imageOptions) error {
	all, err := workers(ctx, cluster, options.nodes)
	if err != nil {
		return err
	}
	named := len(options.nodes) > 0
	if !named {
		all = slices.DeleteFunc(all, func(w worker) bool { return !w.assigned })
		if len(all) == 0 {
			return noWorker()
		}
	}
	document := output.ImageLoad{File: images.name, DryRun: options.dryRun, Nodes: make([]output.ImageLoadNode, len(all))}
	uploads := make([]*upload, 0, len(all))
	for i, w := range all {
		node := &document.Nodes[i]
		*node = output.ImageLoadNode{NodeID: w.nodeID, Result: output.ImagesNotLoaded, Images: []string{}}
		if idle := w.idle(); !named && idle != "" {
			node.Result, node.Reason = output.ImagesSkipped, idle
			continue
		}
		one := &upload{node: node}
		uploads = append(uploads, one)
		if silent := w.silent(); silent != "" {
			one.fail(silent, fault.Refused)
		} else if one.client, err = w.client(ctx, cluster); err != nil {
			one.fail(missing("", err).Reason, fault.CodeOf(err))
		}
	}
	if !options.dryRun {
		ctx, cancel := context.WithTimeout(ctx, options.timeout)
		defer cancel()
		c.upload(ctx, images, slices.DeleteFunc(slices.Clone(uploads), func(u *upload) bool { return u.code != fault.OK }))
	}
	if err := c.print(document); err != nil {
		return err
	}
	return imageVerdict(images, uploads)
}

// upload sends the archive to nodes, side by side, and says how far it is.
func (c *commands) upload(ctx context.Context, images *archive, uploads []*upload) {
	if len(uploads) == 0 {
		return
	}
	lines := await.NewLines(c.Stderr, c.Width, fmt.Sprintf("Loading %s onto %s", output.Clean(images.name), count(len(uploads), "node")), c.Now)
	defer lines.Close()
	over := make(chan struct{})
	readers := images.readers(len(uploads))
	for i, one := range uploads {
		go func() {
			one.run(ctx, readers[i])
			one.done.Store(true)
			over <- struct{}{}
		}()
	}
	var tick <-chan time.Time
	if c.Width > 0 {
		ticker := time.NewTicker(time.Second / 4)
		defer ticker.Stop()
		tick = ticker.C
	}
	for ended := 0; ended < len(uploads); {
		select {
		case <-over:
			ended++
			if c.Width == 0 {
				lines.Now(fmt.Sprintf("%d of %d done", ended, len(uploads)))
				continue
			}
		case <-tick:
		}
		var texts []string
		for _, one := range uploads {
			texts = append(texts, one.progress(images))
		}
		if c.Width > 0 {
			lines.Now(strings.Join(texts, ", "))
		}
	}
}

// progress is how far an upload is, in few words.
func (u *upload) progress(images *archive) string {
	text := u.node.NodeID[:min(len(u.node.NodeID), len("reeve-")+6)] + " "
	sent := u.sent.Load()
	switch {
	case u.done.Load():
		return text + "done"
	case images.file == nil:
		return text + fmt.Sprintf("%d MiB", sent>>20)
	case sent < images.size:
		return text + fmt.Sprintf("%d %%", 100*sent/images.size)
	}
	return text + "unpacks"
}

// run sends the archive and waits until the node has its images.
func (u *upload) run(ctx context.Context, images io.ReadCloser) {
	stream, cancel := context.WithCancel(ctx)
	defer cancel() // one that is left half sent must not be taken for whole
	defer func() { _ = images.Close() }()
	response, err := u.send(stream, images)
	if err != nil {
		reason := fault.Message(err)
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			reason = "it was interrupted"
		case ctx.Err() != nil:
			reason = "it took longer than --timeout says"
		}
		u.fail(reason, fault.CodeOf(fault.FromRPC(err, "", "")))
		u.node.Bytes = u.sent.Load()
		return
	}
	u.node.Result, u.node.Images, u.node.Bytes = output.ImagesLoaded, response.GetReferences(), int64(response.GetBytes())
}

func (u *upload) send(ctx context.Context, images io.Reader) (*kubernetesv1.LoadImageResponse, error) {
	stream, err := u.client.LoadImage(ctx)
	if err != nil {
		return nil, err
	}
	for {
		// One for each message, which may be looked at after it was sent.
		chunk := make([]byte, imageChunk)
		n, err := images.Read(chunk)
		if n > 0 {
			// Of a stream that the node has ended the answer says why.
			if refused := stream.Send(&kubernetesv1.LoadImageRequest{Chunk: chunk[:n]}); refused != nil {
				return stream.CloseAndRecv()
			}
			u.sent.Add(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return stream.CloseAndRecv()
		}
		if err != nil {
			return nil, fault.Wrap(fault.Failed, err, "cannot read the archive to its end", "")
		}
	}
}

// imageVerdict is the fault if a node that should have the images does not have them.
func imageVerdict(images *archive, uploads []*upload) error {
	var without []string
	codes := make(map[fault.Code]bool)
	for _, one := range uploads {
		if one.node.Result == output.ImagesFailed {
			without, codes[one.code] = append(without, one.node.NodeID), true
		}
	}
	next := "Run `reeve kubernetes check` to see what is missing there."
	switch {
	case len(uploads) == 0:
		return fault.New(fault.Refused, "no "+workerRole+" works at present that could take images", next)
	case len(without) == 0:
		return nil
	case len(without) < len(uploads):
		next = "Correct what is wrong there, and run the command again with --node " + strings.Join(without, " --node ") + "."
		codes = nil
	}
	code := fault.Failed
	if len(codes) == 1 {
		for only := range codes {
			code = only
		}
	}
	return fault.New(code, fmt.Sprintf("the images of %s are on %d of %s, and not on %s", images.name, len(uploads)-len(without), count(len(uploads), "node"), strings.Join(without, ", ")), next)
}

// count is a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
