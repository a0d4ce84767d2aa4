// Package partition tests clusters whose nodes have network namespaces of their own (`reeve dev up --netns`): what becomes of them when nodes are cut off from each other,
// and when their addresses change. It needs root, and nft.
package partition
