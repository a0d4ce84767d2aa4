package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "parts: "+err.Error())
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "parts",
		Short:         "What a worker of Kubernetes runs besides the plugin",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(buildCommand(), imageCommand(), pauseCommand())
	return root
}

func buildCommand() *cobra.Command {
	var b builder
	c := &cobra.Command{
		Use:   "build",
		Short: "Build what is not up to date",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b.say = func(format string, arguments ...any) { _, _ = fmt.Fprintf(c.OutOrStdout(), format+"\n", arguments...) }
			return b.build(c.Context(), parts())
		},
	}
	c.Flags().StringVar(&b.directory, "output", "bin/kubernetes", "the directory into which it is built")
	c.Flags().StringVar(&b.architecture, "architecture", "", "of the nodes, by Go's name (default: what Go builds for)")
	return c
}

func imageCommand() *cobra.Command {
	var reference, output, architecture, user string
	var command []string
	var files, links map[string]string
	c := &cobra.Command{
		Use:   "image --reference NAME --output FILE [PROGRAM]",
		Short: "Make an image of a static program and more files, which `reeve kubernetes image load` takes",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			made := image.Image{Reference: reference, Architecture: architecture}
			if len(arguments) > 0 {
				executable, err := os.ReadFile(arguments[0])
				if err != nil {
					return err
				}
				made = image.Program(reference, architecture, filepath.Base(arguments[0]), executable)
			}
			made.User, made.Command = user, command
			for path, from := range files {
				content, err := os.ReadFile(from)
				if err != nil {
					return err
				}
				made.Files = append(made.Files, image.File{Path: path, Mode: 0o755, Content: content})
			}
			for path, target := range links {
				made.Files = append(made.Files, image.File{Path: path, Link: target})
			}
			return writeImage(output, made)
		},
	}
	c.Flags().StringVar(&reference, "reference", "", "the name of the image, such as example.org/hello:1")
	c.Flags().StringVar(&output, "output", "", "the file that is written")
	c.Flags().StringVar(&architecture, "architecture", runtime.GOARCH, "of the program, by Go's name")
	c.Flags().StringVar(&user, "user", image.Unprivileged, "as whom it runs, UID:GID; empty: root")
	c.Flags().StringSliceVar(&command, "command", nil, "what is run where a pod says nothing else: the arguments of PROGRAM, or a program with its own")
	c.Flags().StringToStringVar(&files, "file", nil, "PATH=FILE: an executable that is in the image besides")
	c.Flags().StringToStringVar(&links, "link", nil, "PATH=TARGET: a symbolic link that is in the image besides")
	_ = c.MarkFlagRequired("reference")
	_ = c.MarkFlagRequired("output")
	return c
}

func pauseCommand() *cobra.Command {
	var output, architecture, reference string
	c := &cobra.Command{
		Use:   "pause --output FILE",
		Short: "Write the pause image that is built into the plugin",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			pause, err := image.Pause(architecture)
			if err != nil {
				return err
			}
			if reference != "" {
				pause.Reference = reference
			}
			return writeImage(output, pause)
		},
	}
	c.Flags().StringVar(&output, "output", "", "the file that is written")
	c.Flags().StringVar(&architecture, "architecture", runtime.GOARCH, "of the nodes, by Go's name")
	c.Flags().StringVar(&reference, "reference", "", "another name for the image than its own")
	_ = c.MarkFlagRequired("output")
	return c
}
