/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Prints the structures and request numbers of the kernel's headers, line by
 * line as `cargo run -p rocket-uapi --example print_abi` prints ours.
 */
#include <stddef.h>
#include <stdio.h>

#include <drm/drm.h>
#include <drm/rocket_accel.h>
#include <linux/dma-buf.h>
#include <linux/sync_file.h>

#define STRUCT(name)                                                         \
	printf("struct " #name " size %zu align %zu\n", sizeof(struct name), \
	       _Alignof(struct name))
#define FIELD(name, field)                                       \
	printf("field " #name "." #field " offset %zu size %zu\n", \
	       offsetof(struct name, field),                     \
	       sizeof(((struct name *)0)->field))
#define IOCTL(name) printf("ioctl " #name " 0x%08x\n", (unsigned int)(name))

int main(void)
{
	STRUCT(drm_rocket_create_bo);
	FIELD(drm_rocket_create_bo, size);
	FIELD(drm_rocket_create_bo, handle);
	FIELD(drm_rocket_create_bo, dma_address);
	FIELD(drm_rocket_create_bo, offset);
	STRUCT(drm_rocket_submit);
	FIELD(drm_rocket_submit, jobs);
	FIELD(drm_rocket_submit, job_count);
	FIELD(drm_rocket_submit, job_struct_size);
	FIELD(drm_rocket_submit, reserved);
	STRUCT(drm_rocket_job);
	FIELD(drm_rocket_job, tasks);
	FIELD(drm_rocket_job, in_bo_handles);
	FIELD(drm_rocket_job, out_bo_handles);
	FIELD(drm_rocket_job, task_count);
	FIELD(drm_rocket_job, task_struct_size);
	FIELD(drm_rocket_job, in_bo_handle_count);
	FIELD(drm_rocket_job, out_bo_handle_count);
	STRUCT(drm_rocket_task);
	FIELD(drm_rocket_task, regcmd);
	FIELD(drm_rocket_task, regcmd_count);
	STRUCT(drm_rocket_prep_bo);
	FIELD(drm_rocket_prep_bo, handle);
	FIELD(drm_rocket_prep_bo, reserved);
	FIELD(drm_rocket_prep_bo, timeout_ns);
	STRUCT(drm_rocket_fini_bo);
	FIELD(drm_rocket_fini_bo, handle);
	FIELD(drm_rocket_fini_bo, reserved);
	STRUCT(dma_buf_export_sync_file);
	FIELD(dma_buf_export_sync_file, flags);
	FIELD(dma_buf_export_sync_file, fd);
	STRUCT(dma_buf_import_sync_file);
	FIELD(dma_buf_import_sync_file, flags);
	FIELD(dma_buf_import_sync_file, fd);
	STRUCT(dma_buf_sync);
	FIELD(dma_buf_sync, flags);
	STRUCT(sync_merge_data);
	FIELD(sync_merge_data, name);
	FIELD(sync_merge_data, fd2);
	FIELD(sync_merge_data, fence);
	FIELD(sync_merge_data, flags);
	FIELD(sync_merge_data, pad);
	STRUCT(sync_fence_info);
	FIELD(sync_fence_info, obj_name);
	FIELD(sync_fence_info, driver_name);
	FIELD(sync_fence_info, status);
	FIELD(sync_fence_info, flags);
	FIELD(sync_fence_info, timestamp_ns);
	STRUCT(sync_file_info);
	FIELD(sync_file_info, name);
	FIELD(sync_file_info, status);
	FIELD(sync_file_info, flags);
	FIELD(sync_file_info, num_fences);
	FIELD(sync_file_info, pad);
	FIELD(sync_file_info, sync_fence_info);
	IOCTL(DRM_IOCTL_ROCKET_CREATE_BO);
	IOCTL(DRM_IOCTL_ROCKET_SUBMIT);
	IOCTL(DRM_IOCTL_ROCKET_PREP_BO);
	IOCTL(DRM_IOCTL_ROCKET_FINI_BO);
	IOCTL(DRM_IOCTL_VERSION);
	IOCTL(DRM_IOCTL_GET_CAP);
	IOCTL(DRM_IOCTL_GEM_CLOSE);
	IOCTL(DRM_IOCTL_PRIME_HANDLE_TO_FD);
	IOCTL(DRM_IOCTL_PRIME_FD_TO_HANDLE);
	IOCTL(DMA_BUF_IOCTL_EXPORT_SYNC_FILE);
	IOCTL(DMA_BUF_IOCTL_IMPORT_SYNC_FILE);
	IOCTL(DMA_BUF_IOCTL_SYNC);
	IOCTL(DMA_BUF_SET_NAME_B);
	IOCTL(SYNC_IOC_MERGE);
	IOCTL(SYNC_IOC_FILE_INFO);
	return 0;
}
