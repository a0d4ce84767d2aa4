// Command parts builds what a worker of Kubernetes runs besides the plugin: containerd, runc, CNI plugins, and an image of CoreDNS.
//
//	parts build --output DIRECTORY    build what is not up to date (`make deps-kubernetes` builds into bin/kubernetes)
//	parts image --reference NAME --output FILE PROGRAM
//	                                  make an image of a static program
//	parts pause --output FILE         write the pause image, which is built into the plugin
//
// The sources come as modules from the Go module proxy, at the versions and with the checksums in sources.go. A module has the checksums of everything it is built of in its own go.sum, so that all of
// the source is what it was when the version was put there, whoever serves it.
//
// The directory has a file parts.json, which says of what and how each part was built. What is as it says is not built again. Builds into the same directory wait for one another.
package main
